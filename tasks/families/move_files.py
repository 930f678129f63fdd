"""Move the files of one kind, or those that hold a word, into a new folder."""

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
        word = n.word()
        search = n.chance(0.6)
        if search:
            moved = sorted(n.rng.sample(moved + kept, n.choice([1, 2])))
            kept = sorted(name for name in (path.split("/")[1] for path in files) if name not in moved)
            files |= {f"{source}/{name}": f"{word} {n.pair()}\n" for name in moved}
            instruction = f"Move the files of {source} that hold the word {word} to a new folder {target}."
            first = look(n, "where the word is", f"grep -l {word} {source}/*")
            sources = " ".join(f"{source}/{name}" for name in moved)
        else:
            instruction = f"Move every {kind} file from {source} to a new folder {target}."
            first = look(n, "the folder", f"ls {source}")
            sources = f"{source}/*.{kind}"
        rest = n.chance(0.9)

        def expert() -> Expert:
            yield first
            yield act(n, "make the folder", f"mkdir {target}")
            yield act(n, "move the files", f"mv {sources} {target}")
            yield check(n, "the new folder", f"ls {target}")
            if rest:
                yield check(n, "what is left", f"ls {source}")
            yield done(n)

        test = output_is(f"ls {target}", "\n".join(moved)) + output_is(f"ls {source}", "\n".join(kept))
        return GeneratedTask(self.name, seed, instruction, files, test, expert)
