"""Move the files of one kind into a new folder."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look
from tasks.families.words import Names

KINDS = ["txt", "log", "csv", "md"]


class MoveFiles:
    name = "move_files"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        source, target = n.words(2)
        kind, other = n.rng.sample(KINDS, 2)
        moved = sorted(f"{n.word()}.{kind}" for _ in range(2))
        kept = sorted(f"{n.word()}.{other}" for _ in range(n.choice([1, 2])))
        files = {f"{source}/{name}": f"{n.pair(' ')}\n" for name in moved + kept}
        instruction = f"Move every {kind} file from {source} to a new folder {target}."
        rest = n.chance(0.9)

        def expert() -> Expert:
            yield look(n, "the folder", f"ls {source}")
            yield act(n, "make the folder", f"mkdir {target}")
            yield act(n, "move the files", f"mv {source}/*.{kind} {target}")
            yield check(n, "the new folder", f"ls {target}")
            if rest:
                yield check(n, "what is left", f"ls {source}")
            yield done(n)

        test = output_is(f"ls {target}", "\n".join(moved)) + output_is(f"ls {source}", "\n".join(kept))
        return GeneratedTask(self.name, seed, instruction, files, test, expert)
