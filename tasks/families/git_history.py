"""Read the history of a repository: which commit came first, which before another, which one added a file."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


class GitHistory:
    name = "git_history"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        answer = f"{n.word()}.txt"
        words = n.words(3)
        files = {f"{word}.md": f"{n.pair(' ')}\n" for word in words}
        subjects = [f"{n.choice(['add', 'write', 'start'])} {word}" for word in words]
        commits = "".join(
            f"git add {word}.md && git commit -q -m '{subject}'\n"
            for word, subject in zip(words, subjects, strict=True)
        )
        setup = f"git init -q -b main .\n{commits}"
        which = n.choice(["first", "last", "file", "before", "before", "before"])
        if which == "file":
            target = n.choice(range(3))
            instruction = f"Write the message of the commit that added {words[target]}.md to {answer}."
            command = f"git log --format=%s -- {words[target]}.md"
        elif which == "before":
            target = n.choice(range(2))
            instruction = f"Write the message of the commit before '{subjects[target + 1]}' to {answer}."
            command = f"echo '{subjects[target]}'"
        else:
            target = 0 if which == "first" else 2
            instruction = f"Write the message of the {which} commit to {answer}."
            command = "git log --format=%s | tail -n 1" if which == "first" else "git log --format=%s -n 1"
        show, again = n.chance(0.8) and which != "before", n.chance(0.4)

        def expert() -> Expert:
            yield look(n, "the history", "git log --format=%s")
            if show:
                yield see(n, "the commit", command)
            yield act(n, "write the message", f"{command} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            if again:
                yield check(n, "the history", "git log --format=%s -n 2")
            yield done(n)

        return GeneratedTask(
            self.name, seed, instruction, files, file_is(answer, subjects[target]), expert, setup_sh=setup
        )
