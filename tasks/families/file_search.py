"""Find the file that holds a word, or the largest or smallest count, and write its path down."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class FileSearch:
    name = "file_search"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        top, answer, target = n.word(), f"{n.word()}.txt", n.word()
        paths = [f"{top}/{n.word()}/{n.word()}.txt" for _ in range(3)]
        files = {path: f"{n.pair(' ')}\n" for path in paths}
        ranked = n.chance(0.6)
        if ranked:
            counts, rank, index = n.ranked(3)
            found = paths[index]
            files = {path: f"{n.pair()} count {count}\n" for path, count in zip(paths, counts, strict=True)}
            instruction = f"Write the path of the file in {top} with the {rank} count to {answer}."
        else:
            found = n.choice(paths)
            files[found] = f"{files[found].rstrip()} {target}\n"
            instruction = f"One file below {top} holds the word {target}. Write its path to {answer}."
        read, confirm = n.chance(0.6), n.chance(0.7) and not ranked

        def expert() -> Expert:
            yield look(n, "the folder", f"grep -r {'count' if ranked else target} {top}")
            if read:
                yield see(n, "the file", f"cat {found}")
            if confirm:
                yield check(n, "the path", f"grep -rl {target} {top}")
            yield act(n, "write the path", f"echo {found} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        return GeneratedTask(self.name, seed, instruction, files, file_is(answer, found), expert)
