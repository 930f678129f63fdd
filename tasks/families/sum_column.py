"""Add up a column of numbers, or find the row with the largest or smallest, and write it down."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class SumColumn:
    name = "sum_column"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path, answer = f"{n.pair()}.tsv", f"{n.word()}.txt"
        names = [n.pair(), *n.words(n.choice([1, 2]))]
        n.rng.shuffle(names)
        numbers, rank, found = n.ranked(len(names))
        ranked = n.chance(0.7)
        if ranked:
            instruction = f"Write the name with the {rank} number in {path} to {answer}."
        else:
            instruction = f"Add up the numbers in {path} and write the total to {answer}."
        command = f"awk '{{s+=$2}} END {{print s}}' {path}"
        show, reread = n.chance(0.9), n.chance(0.7)

        def find() -> Expert:
            yield look(n, "the table", f"cat {path}")
            if show:
                yield see(n, "the row", f"grep {names[found]} {path}")
            yield act(n, "write the name", f"echo {names[found]} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        def expert() -> Expert:
            yield look(n, "the table", f"cat {path}")
            if show:
                yield act(n, "add them up", command)
            yield act(n, "write the total", f"{command} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            if reread:
                yield check(n, "the table", f"cat {path}")
            yield done(n)

        text = "".join(f"{name} {number}\n" for name, number in zip(names, numbers, strict=True))
        test = file_is(answer, names[found] if ranked else str(sum(numbers)))
        return GeneratedTask(self.name, seed, instruction, {path: text}, test, find if ranked else expert)
