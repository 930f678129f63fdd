"""Change one row of a small table, named or to be found by its count, or add one."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class CsvEdit:
    name = "csv_edit"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path = f"{n.pair()}.csv"
        names = [n.pair(), *n.words(n.choice([1, 2]))]
        n.rng.shuffle(names)
        counts, rank, found = n.ranked(len(names))
        rows = list(zip(names, counts, strict=True))
        old = "name,count\n" + "".join(f"{word},{count}\n" for word, count in rows)
        kind = n.choice(["add", "named", "ranked", "ranked"])
        count = n.number(100)
        word = {"add": n.word(), "named": n.choice(names), "ranked": names[found]}[kind]
        if kind == "add":
            instruction = f"Add a row for {word} with the count {count} at the end of {path}."
            new = f"{old}{word},{count}\n"
            edit = act(n, "add the row", f"echo '{word},{count}' >> {path}")
        else:
            row = word if kind == "named" else f"the row with the {rank} count"
            instruction = f"In {path} change the count of {row} to {count}."
            new = "name,count\n" + "".join(f"{w},{count if w == word else c}\n" for w, c in rows)
            edit = act(n, "change the row", f"sed -i 's/^{word},.*/{word},{count}/' {path}")
        whole, peek = n.chance(0.8), n.chance(0.5)

        def expert() -> Expert:
            yield look(n, "the table", f"cat {path}")
            if peek:
                yield see(n, "the last row", f"tail -n 1 {path}")
            yield edit
            yield check(n, "the row", f"grep {word} {path}")
            if whole:
                yield check(n, "the table", f"cat {path}")
            yield done(n)

        return GeneratedTask(self.name, seed, instruction, {path: old}, file_is(path, new), expert)
