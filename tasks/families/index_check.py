"""Find the file whose content differs from what an index says, and correct it."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class IndexCheck:
    name = "index_check"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        index = f"{n.pair()}.idx"
        rows = [(f"{n.word()}.txt", n.pair()) for _ in range(n.choice([2, 3]))]
        wrong = n.choice(range(len(rows)))
        files = {path: f"{n.pair() if i == wrong else word}\n" for i, (path, word) in enumerate(rows)}
        files[index] = "".join(f"{path} {word}\n" for path, word in rows)
        instruction = (
            f"The index {index} names each file and its word. One file holds another word. Correct it."
        )
        last = n.chance(0.7)

        def expert() -> Expert:
            yield look(n, "the index", f"cat {index}")
            for path, word in rows:
                observation = yield see(n, "a file", f"cat {path}")
                if not observation.startswith(f"{word}\n"):
                    yield act(n, "correct it", f"echo {word} > {path}")
                    yield check(n, "the file", f"cat {path}")
                    break
            if last:
                yield check(n, "the index", f"cat {index}")
            yield done(n)

        test = "".join(file_is(path, word) for path, word in rows)
        return GeneratedTask(self.name, seed, instruction, files, test, expert)
