"""Build a C program, correct the mistake that the compiler names, and write down what the program prints."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is, output_is
from tasks.families.slow.mixing import header, mix, symbol
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

MAKEFILE = """\
# {program}
.SILENT:
export LC_ALL = C
CFLAGS = -O2 -fno-diagnostics-show-caret
{program}: {objects} main.o
	gcc -o $@ $^
	echo built $@
%.o: %.c mix.h
	gcc $(CFLAGS) -c $<
"""
UNIT = """\
/* {program} */
#include "mix.h"
unsigned {name}(unsigned x) {{
  unsigned total = x + {add};
  MIX(total)
  return total % 100;
}}
"""
MISTAKES = [
    ("unsigned total", "unsigend total"),
    ("return total", "return totl"),
    ("return", "retrun"),
    ("100;", "100"),
]
"""A text that is in a unit once, and what stands there in the bad one."""

MAIN = """\
#include <stdio.h>
unsigned {declared};
int main(void) {{ /* {program} */
{prints}
}}
"""
DRIVER = """\
folder=$(mktemp -d)
echo '#include <stdio.h>
unsigned {name}(unsigned);
int main(void) {{ printf("%u", {name}({argument})); }}' > $folder/driver.c
gcc -O0 -o $folder/driver $folder/driver.c {name}.c
"""


class Compile:
    name = "compile"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        program, answer = n.pair(), f"{n.word()}.txt"
        units = [symbol(n) for _ in range(3)]
        argument = n.number(10, 99)
        adds, values = _values(n, len(units), argument)
        # The first object is good, so that the build that fails has compiled something.
        bad, place = n.choice(units[1:]), n.choice(range(len(units)))
        right, wrong = n.choice(MISTAKES)
        files = {
            f"{unit}.c": UNIT.format(program=program, name=unit, add=add)
            for unit, add in zip(units, adds, strict=True)
        }
        files |= {
            f"{bad}.c": files[f"{bad}.c"].replace(right, wrong),
            "mix.h": header(program),
            "Makefile": MAKEFILE.format(program=program, objects=" ".join(f"{unit}.o" for unit in units)),
            "main.c": MAIN.format(
                program=program,
                declared=", ".join(f"{unit}(unsigned)" for unit in units),
                prints="\n".join(f'  printf("{unit} %u\\n", {unit}({argument}));' for unit in units),
            ),
        }
        wish = f"the line of {units[place]}"
        if n.chance(0.6):
            rank = n.choice(["largest", "smallest"])
            place = values.index(max(values) if rank == "largest" else min(values))
            wish = f"the line with the {rank} number"
        instruction = (
            f"A source of {program} has a mistake. Correct it, build {program} with make, run it, "
            f"and write {wish} to {answer}."
        )
        first, reread = n.chance(0.6), n.chance(0.7)

        def expert() -> Expert:
            if first:
                yield look(n, "the folder", "ls")
            yield act(n, "build it", "make")
            yield see(n, "the mistake", f"cat {bad}.c")
            end = "$" if right.startswith(wrong) else ""
            yield act(n, "correct it", f"sed -i 's/{wrong}{end}/{right}/' {bad}.c")
            if reread:
                yield check(n, "the source", f"cat {bad}.c")
            yield check(n, "that it builds", "make")
            yield see(n, "what it prints", f"./{program}")
            yield act(n, "write the line", f"./{program} | grep -w {units[place]} > {answer}")
            yield check(n, "the answer", f"cat {answer}")
            yield done(n)

        printed = [f"{unit} {value}" for unit, value in zip(units, values, strict=True)]
        test = (
            file_is(answer, printed[place])
            + output_is(f"./{program}", "\n".join(printed))
            + DRIVER.format(name=bad, argument=argument)
            + output_is("$folder/driver", str(values[units.index(bad)]))
        )
        return GeneratedTask(self.name, seed, instruction, files, test, expert)


def _values(n: Names, count: int, argument: int) -> tuple[list[int], list[int]]:
    """What each unit adds to the argument, and its result; the results differ."""
    while True:
        adds = n.rng.sample(range(10, 100), count)
        values = [mix(argument + add) % 100 for add in adds]
        if len(set(values)) == count:
            return adds, values
