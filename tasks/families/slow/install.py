"""Install packages from a local index, with what they need; a C extension of each is compiled."""

from __future__ import annotations

import hashlib

from tasks.families.base import Expert, GeneratedTask, Step
from tasks.families.checks import file_is, output_is
from tasks.families.slow.mixing import header, mix
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

SDIST = """\
name {name}
needs {needs}
%% __init__.py
import ctypes
{imports}
def value():
    return ctypes.CDLL(__path__[0] + "/code.so").value({argument})
%% code.c
#include "mix.h"
unsigned value(unsigned x) {{
  x += {add};
  MIX(x)
  return x % 100;
}}
"""
INSTALLER = '''\
#!/usr/bin/env -S python3 -B -S
"""Installs a package for {project} in site/, from index/, and first what it needs."""
import compileall
import hashlib
import os
import subprocess
import sys


def read(path):
    with open(path) as file:
        return file.read()


PINS = dict(map(str.split, read("pins.txt").splitlines()))
SUMS = dict(map(str.split, read("index/sums.txt").splitlines()))


def resolve(name, wanted, order):
    """Appends the packages to install, those that others need first."""
    if name not in PINS:
        sys.exit(f"no {{name}} in pins.txt")
    if wanted not in (None, PINS[name]):
        sys.exit(f"{{name}} {{wanted}} is needed, but pins.txt says {{name}} {{PINS[name]}}")
    archive = f"{{name}}-{{PINS[name]}}.sdist"
    if archive not in SUMS:
        sys.exit(f"no {{archive}} in index")
    text = read(f"index/{{archive}}")
    if hashlib.sha256(text.encode()).hexdigest()[:12] != SUMS[archive]:
        sys.exit(f"{{archive}} is damaged")
    head, *files = text.split("\\n%% ")
    needed, *version = head.splitlines()[1].split()[1:]
    if version:
        resolve(needed, version[0], order)
    if name not in order:
        order[name] = files


def build(name, files):
    folder = f"site/{{name}}"
    os.makedirs(folder, exist_ok=True)
    for part in files:
        path, _, text = part.partition("\\n")
        with open(f"{{folder}}/{{path}}", "w") as file:
            file.write(text)
    command = f"gcc -O1 -shared -fPIC -I index -o {{folder}}/code.so {{folder}}/code.c"
    subprocess.run(command.split(), check=True)
    compileall.compile_dir(folder, quiet=1)
    with open(f"{{folder}}/version", "w") as file:
        file.write(PINS[name])
    print("installed", name, PINS[name], flush=True)


def is_there(name):
    path = f"site/{{name}}/version"
    return os.path.exists(path) and read(path) == PINS[name]


order = {{}}
resolve(sys.argv[1], None, order)
if is_there(sys.argv[1]):
    print(sys.argv[1], PINS[sys.argv[1]], "is there already")
for name, files in order.items():
    if not is_there(name):
        build(name, files)
'''
RUN = '''\
#!/usr/bin/env -S python3 -B -S
"""Prints the value of a package that is installed for {project}."""
import importlib
import sys

sys.path.insert(0, "site")
try:
    print(sys.argv[1], importlib.import_module(sys.argv[1]).value())
except ModuleNotFoundError as error:
    sys.exit(f"{{error.name}} is not installed")
'''


class Install:
    name = "install"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        project, answer = n.pair(), f"{n.word()}.txt"
        base, *tops = [n.pair() for _ in range(3)]
        versions = {name: n.number(2, 9) for name in (base, *tops)}
        old = versions[base] - 1
        start, adds, values = _values(n, base, tops)
        pinned = n.chance(0.5)
        if pinned:
            tops = tops[:1]
        index = {f"{base}-{old}": _sdist(base, n.number(10, 99), str(start))}
        index[f"{base}-{versions[base]}"] = _sdist(base, adds[base], str(start))
        for top in tops:
            index[f"{top}-{versions[top]}"] = _sdist(top, adds[top], f"{base}.value()", base, versions[base])
        sums = {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in index.items()}
        pins = {name: versions[name] for name in (base, *tops)} | ({base: old} if pinned else {})
        files = {f"index/{name}.sdist": text for name, text in index.items()} | {
            "index/sums.txt": "".join(f"{name}.sdist {digest}\n" for name, digest in sums.items()),
            "index/mix.h": header(project),
            "pins.txt": "".join(f"{name} {version}\n" for name, version in pins.items()),
            "install.py": INSTALLER.format(project=project),
            "run.py": RUN.format(project=project),
        }
        rank = n.choice(["larger", "smaller"])
        chosen = (max if rank == "larger" else min)(tops, key=lambda top: values[top])
        what = "it" if pinned else f"the one with the {rank} value"
        instruction = (
            f"Install {' and '.join(tops)} with ./install.py, and write what ./run.py prints for {what} "
            f"to {answer}."
        )
        first, reread = n.chance(0.6), n.chance(0.7)

        def expert() -> Expert:
            if first or pinned:
                yield look(n, "the versions", "cat pins.txt")
            if pinned:
                yield see(n, f"what {tops[0]} needs", f"head -n 2 index/{tops[0]}-{versions[tops[0]]}.sdist")
                yield act(n, f"install {tops[0]}", f"./install.py {tops[0]}")
                yield act(
                    n, "correct the version", f"sed -i 's/{base} {old}/{base} {versions[base]}/' pins.txt"
                )
            for top in tops:
                yield Step(
                    n.wording([f"Now I install {top}.", f"I install {top}."], "again"), f"./install.py {top}"
                )
            for top in tops:
                yield check(n, f"the value of {top}", f"./run.py {top}")
            yield act(n, "write the line", f"./run.py {chosen} > {answer}")
            if reread:
                yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        printed = "\n".join(f"{top} {values[top]}" for top in tops)
        load = (
            "import sys; from importlib import import_module as load; sys.path.insert(0, 'site'); "
            f"[print(name, load(name).value()) for name in {tops}]"
        )
        test = file_is(answer, f"{chosen} {values[chosen]}") + output_is(
            f'python3 -B -I -S -c "{load}"', printed
        )
        return GeneratedTask(
            self.name, seed, instruction, files, test, expert, executable=frozenset({"install.py", "run.py"})
        )


def _sdist(name: str, add: int, argument: str, needed: str = "", version: int = 0) -> str:
    return SDIST.format(
        name=name,
        add=add,
        argument=argument,
        needs=f"{needed} {version}" if needed else "nothing",
        imports=f"import {needed}\n" if needed else "",
    )


def _values(n: Names, base: str, tops: list[str]) -> tuple[int, dict[str, int], dict[str, int]]:
    """The argument of the base package, what each package adds, and the value of each; the tops' differ."""
    start = n.number(10, 99)
    while True:
        adds = {name: n.number(10, 99) for name in (base, *tops)}
        values = {base: mix(start + adds[base]) % 100}
        values |= {top: mix(values[base] + adds[top]) % 100 for top in tops}
        if values[tops[0]] != values[tops[1]]:
            return start, adds, values
