"""Count the lines of one level in a log and write the number down."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

LEVELS = ["INFO", "WARN", "ERROR"]


class LogCount:
    name = "log_count"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path, answer = f"{n.pair()}.log", f"{n.word()}.txt"
        level = n.choice(LEVELS)
        count = n.choice([1, 2, 3, 4])
        others = [n.choice([name for name in LEVELS if name != level]) for _ in range(n.choice([2, 3]))]
        levels = [level] * count + others
        n.rng.shuffle(levels)
        text = "".join(f"{name} {n.pair(' ')}\n" for name in levels)
        instruction = n.choice(
            [
                f"How many {level} lines are in {path}? Write the number to {answer}.",
                f"Count the lines of level {level} in {path} and write the number to {answer}.",
            ]
        )
        whole, show = n.chance(0.5), n.chance(0.8)

        def expert() -> Expert:
            if whole:
                yield look(n, "the log", f"cat {path}")
            if show or not whole:
                yield see(n, "the lines", f"grep {level} {path}")
            yield act(n, "count them", f"grep -c {level} {path}")
            yield act(n, "write the number", f"grep -c {level} {path} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        return GeneratedTask(self.name, seed, instruction, {path: text}, file_is(answer, str(count)), expert)
