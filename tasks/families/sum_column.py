"""Add up a column of numbers and write the total down."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look
from tasks.families.words import Names


class SumColumn:
    name = "sum_column"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path, answer = f"{n.pair()}.tsv", f"{n.word()}.txt"
        rows = [(name, n.number(1, 99)) for name in [n.pair(), *n.words(n.choice([1, 2]))]]
        total = sum(count for _, count in rows)
        instruction = n.choice(
            [
                f"Add up the numbers in {path} and write the total to {answer}.",
                f"Write the total of the second column of {path} to {answer}.",
            ]
        )
        command = f"awk '{{s+=$2}} END {{print s}}' {path}"
        show, reread = n.chance(0.9), n.chance(0.7)

        def expert() -> Expert:
            yield look(n, "the table", f"cat {path}")
            if show:
                yield act(n, "add them up", command)
            yield act(n, "write the total", f"{command} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            if reread:
                yield check(n, "the table", f"cat {path}")
            yield done(n)

        text = "".join(f"{word} {count}\n" for word, count in rows)
        return GeneratedTask(self.name, seed, instruction, {path: text}, file_is(answer, str(total)), expert)
