"""Copy the first or the last lines of a file into another."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class TextSlice:
    name = "text_slice"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        source, target = f"{n.pair()}.txt", f"{n.word()}.txt"
        lines = [n.pair(" ") for _ in range(n.choice([4, 5]))]
        tool, count = n.choice(["head", "tail"]), n.choice([1, 2, 3])
        wanted = lines[:count] if tool == "head" else lines[-count:]
        end = "first" if tool == "head" else "last"
        amount = f"{count} lines" if count > 1 else "line"
        instruction = f"Write the {end} {amount} of {source} to {target}."
        show, size = n.chance(0.8), n.chance(0.7)

        def expert() -> Expert:
            yield look(n, "the file", f"cat {source}")
            if show:
                yield see(n, "the lines", f"{tool} -n {count} {source}")
            yield act(n, "write the lines", f"{tool} -n {count} {source} > {target}")
            yield check(n, "the result", f"cat {target}")
            if size:
                yield check(n, "its length", f"wc -l {target}")
            yield done(n)

        text = "\n".join(lines) + "\n"
        return GeneratedTask(
            self.name, seed, instruction, {source: text}, file_is(target, "\n".join(wanted)), expert
        )
