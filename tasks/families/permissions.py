"""Give a file the mode that is asked for, in digits or in words."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look
from tasks.families.words import Names

MODES = ["600", "640", "644", "660", "664", "700", "740", "744", "750", "754", "755", "770"]
DIGIT = {"group": 1, "others": 2}
BITS = {"read": 4, "write": 2, "all": 7}


def without(mode: str, who: str, rights: str) -> str:
    """The mode (three octal digits) after `rights` are taken from `who`."""
    digits = [int(digit) for digit in mode]
    digits[DIGIT[who]] &= ~BITS[rights]
    return "".join(map(str, digits))


WITHDRAWN = [
    (mode, who, rights)
    for mode in ("664", "666", "674", "754", "755", "757", "764", "775", "777")
    for who in DIGIT
    for rights in BITS
    if without(mode, who, rights) != mode
]
"""Every withdrawal that changes something: mode before, from whom, which rights."""


class Permissions:
    name = "permissions"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        folder = n.word()
        paths = [f"{folder}/{n.word()}.sh" for _ in range(n.choice([1, 2]))]
        modes = n.rng.sample(MODES, len(paths) + 1)
        before, after = modes[0], modes[1:]
        wishes = " and ".join(f"{path} mode {mode}" for path, mode in zip(paths, after, strict=True))
        instruction = f"Give {wishes}."
        if n.chance(0.6):
            before, who, rights = n.choice(WITHDRAWN)
            paths, after = paths[:1], [without(before, who, rights)]
            instruction = f"Take {rights} access to {paths[0]} away from {who}."
        if n.chance(0.7):
            instruction += f" The mode is {before} now."

        def expert() -> Expert:
            for path, mode in zip(paths, after, strict=True):
                yield look(n, "the mode", f"stat -c %a {path}")
                yield act(n, "change the mode", f"chmod {mode} {path}")
                yield check(n, "the mode", f"stat -c '%a %n' {path}")
            yield done(n)

        return GeneratedTask(
            self.name,
            seed,
            instruction,
            {path: f"echo {n.pair()}\n" for path in paths},
            "".join(output_is(f"stat -c %a {path}", mode) for path, mode in zip(paths, after, strict=True)),
            expert,
            setup_sh="".join(f"chmod {before} {path}\n" for path in paths),
        )
