"""Commit an untracked file on a new branch."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look
from tasks.families.words import Names


class GitBranch:
    name = "git_branch"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        readme, path, branch, message = f"{n.word()}.md", f"{n.word()}.txt", n.word(), f"add {n.word()}"
        files = {readme: f"{n.pair(' ')}\n", path: f"{n.pair(' ')}\n"}
        setup = f"git init -q -b main .\ngit add {readme} && git commit -q -m start\n"
        instruction = f"Commit the file {path} on a new branch {branch} with the message {message!r}."
        status, branches = n.chance(0.9), n.chance(0.8)

        def expert() -> Expert:
            if status:
                yield look(n, "the state", "git status --short")
            yield act(n, "make the branch", f"git checkout -b {branch}")
            yield act(n, "add the file", f"git add {path}")
            if branches:
                yield check(n, "the state", "git status --short")
            yield act(n, "commit it", f"git commit -q -m '{message}'")
            yield check(n, "the commit", "git log --format=%s -n 1")
            yield done(n)

        test = (
            output_is(f"git log --format=%s -n 1 {branch}", message)
            + output_is(f"git show --format= --name-only {branch}", path)
            + output_is("git log --format=%s main", "start")
        )
        return GeneratedTask(self.name, seed, instruction, files, test, expert, setup_sh=setup)
