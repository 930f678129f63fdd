"""Run a build script that wants an environment variable."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

VARIABLES = ["MODE", "TARGET", "STAGE"]


class EnvMode:
    name = "env_mode"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        script, out, variable, value = f"{n.pair()}.sh", f"{n.pair()}.txt", n.choice(VARIABLES), n.word()
        verb = n.choice(["built", "made", "packed"])
        text = (
            f'[ "${variable}" ] || {{ echo no {variable}; exit 2; }}\necho {verb} ${variable} | tee {out}\n'
        )
        instruction = n.choice(
            [f"Run {script} with {variable} set to {value}.", f"Set {variable} to {value} and run {script}."]
        )
        read, fail, reread = n.chance(0.9), n.chance(0.6), n.chance(0.9)

        def expert() -> Expert:
            if read:
                yield look(n, "the script", f"cat {script}")
            if fail:
                yield see(n, "what it wants", f"bash {script}")
            yield act(n, f"set {variable}", f"export {variable}={value}")
            yield check(n, "the variable", f"echo ${variable}")
            yield act(n, "run the script", f"bash {script}")
            if reread and read:
                yield check(n, "the result", f"cat {out}")
            yield done(n)

        return GeneratedTask(
            self.name, seed, instruction, {script: text}, file_is(out, f"{verb} {value}"), expert
        )
