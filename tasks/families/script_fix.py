"""Repair the misspelt commands, one or two, of a failing script."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

TYPOS = {"echo": ["ehco", "eco"], "printf": ["pritnf"]}


class ScriptFix:
    name = "script_fix"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path = f"{n.pair()}.sh"
        right = n.choice(["echo", "echo", "printf"])
        wrong = n.choice(TYPOS[right])
        variable = n.choice(["name", "item", "place"])
        value, greeting = n.pair(), n.word()
        body = [f"{variable}={value}", f'{wrong} "{greeting} ${variable}"']
        wrongs = {wrong: right}
        if n.chance(0.7):
            second = next(typo for typo in TYPOS["echo"] if typo != wrong)
            wrongs[second] = "echo"
            body.append(f"{second} {n.word()}")
        text = "\n".join(body) + "\n"
        output = "\n".join([f"{greeting} {value}"] + [line.split()[1] for line in body[2:]])
        if right == "printf":
            output = output.replace("\n", "")
        instruction = n.choice(
            [f"The script {path} fails. Repair it.", f"Fix the script {path} so that it runs."]
        )
        run_first, reread = n.chance(0.8), n.chance(0.6)

        def expert() -> Expert:
            yield look(n, "the script", f"cat {path}")
            if run_first:
                yield see(n, "how it fails", f"bash {path}")
            for typo, command in wrongs.items():
                yield act(n, f"repair {typo}", f"sed -i 's/{typo}/{command}/' {path}")
            if reread:
                yield check(n, "the script", f"cat {path}")
            yield check(n, "that it runs", f"bash {path}")
            yield done(n)

        return GeneratedTask(
            self.name, seed, instruction, {path: text}, output_is(f"bash {path} 2>&1", output), expert
        )
