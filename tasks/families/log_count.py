"""Count the lines of one level in a log, or find the level with the most lines, and write it down."""

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
        level, *others = n.rng.sample(LEVELS, 3)
        counts = dict(zip(others, n.choice([(0, 2), (1, 1), (1, 2), (2, 1)]), strict=True))
        most = n.chance(0.6)
        counts[level] = 3 if most else n.choice([1, 2, 3])
        levels = [name for name, count in counts.items() for _ in range(count)]
        n.rng.shuffle(levels)
        text = "".join(f"{name} {n.pair(' ')}\n" for name in levels)
        if most:
            instruction = f"Which level has the most lines in {path}? Write it to {answer}."
        else:
            instruction = f"How many {level} lines are in {path}? Write the number to {answer}."
        whole = n.chance(0.5)

        def compare() -> Expert:
            yield look(n, "the log", f"cat {path}")
            if whole:
                for name in LEVELS:
                    yield act(n, f"count {name}", f"grep -c {name} {path}")
            yield act(n, "write the level", f"echo {level} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        def expert() -> Expert:
            if whole:
                yield look(n, "the log", f"cat {path}")
            yield see(n, "the lines", f"grep {level} {path}")
            yield act(n, "count them", f"grep -c {level} {path}")
            yield act(n, "write the number", f"grep -c {level} {path} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        test = file_is(answer, level if most else str(counts[level]))
        return GeneratedTask(self.name, seed, instruction, {path: text}, test, compare if most else expert)
