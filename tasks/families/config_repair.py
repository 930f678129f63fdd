"""Set one key of a configuration file, named or to be found by its value, and keep the others as they are."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

KEYS = ["port", "host", "mode", "level", "user", "limit", "size", "color"]


class ConfigRepair:
    name = "config_repair"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path = f"{n.pair()}.conf"
        keys = n.rng.sample(KEYS, n.choice([3, 4]))
        named = n.chance(0.3)
        if named:
            old = {key: str(n.number()) if n.chance(0.4) else n.word() for key in keys}
            key, kept = n.rng.sample(keys, 2)
            old[kept] = n.pair()
        else:
            numbers, rank, found = n.ranked(len(keys) - 1)
            old = dict(zip(keys, [*map(str, numbers), n.pair()], strict=True))
            key = keys[found]
        value = old[key]
        while value == old[key]:
            value = str(n.number()) if n.chance(0.4) else n.pair()
        new = old | {key: value}
        if named:
            wordings = [
                f"In {path} the value of {key} must be {value}. Repair it.",
                f"Set {key} to {value} in {path}.",
            ]
        else:
            wordings = [f"Set the key with the {rank} number in {path} to {value}."]
        instruction = n.choice(wordings)

        def text(config: dict[str, str]) -> str:
            return "".join(f"{k}={v}\n" for k, v in config.items())

        peek, reread = n.chance(0.6), n.chance(0.8)

        def expert() -> Expert:
            yield look(n, "the file", f"cat {path}")
            if peek:
                yield see(n, "the key", f"grep {key} {path}")
            yield act(n, f"set {key}", f"sed -i 's/^{key}=.*/{key}={value}/' {path}")
            yield check(n, "the key", f"grep {key} {path}")
            if reread:
                yield check(n, "the file", f"cat {path}")
            yield done(n)

        return GeneratedTask(
            self.name, seed, instruction, {path: text(old)}, file_is(path, text(new)), expert
        )
