"""Run a test suite that computes, repair the function whose test fails, and run it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is, output_is
from tasks.families.slow.mixing import symbol
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names


@dataclass(frozen=True)
class Kind:
    """A function named F, and two tests of it: the suite's, some 0.3 s of work, and a quick hidden one."""

    says: str
    body: str
    test: str
    hidden: tuple[str, str]
    """An expression, and what it prints where the function is right."""
    right: str
    """A text that is in the body once; `wrong` stands there when the function is broken."""
    wrong: str


KINDS = (
    Kind(
        "adds the squares of the numbers below n",
        "def F(n):\n    return sum(i * i for i in range(n))",
        "self.assertEqual(F(8000000), 8000000 * 7999999 * 15999999 // 6)",
        ("F(5)", "30"),
        "i * i",
        "i + i",
    ),
    Kind(
        "counts the primes from 2 on and below n",
        "def F(n):\n    return sum(all(i % k for k in range(2, int(i**0.5) + 1)) for i in range(2, n))",
        "self.assertEqual(F(200000), 17984)",
        ("F(30)", "10"),
        "range(2, n)",
        "range(3, n)",
    ),
    Kind(
        "counts the numbers below n that read the same backwards",
        "def F(n):\n    return sum(str(i) == str(i)[::-1] for i in range(n))",
        "self.assertEqual(F(2000000), 2999)",
        ("F(200)", "29"),
        "==",
        "!=",
    ),
    Kind(
        "counts the steps of 5 x + 1 modulo n from 0 back to 0",
        "def F(n):\n    x, steps = 1, 1\n    while x:\n"
        "        x = (5 * x + 1) % n\n        steps += 1\n    return steps",
        "self.assertEqual(F(4194304), 4194304)",
        ("F(64)", "64"),
        "steps += 1",
        "steps += 2",
    ),
    Kind(
        "stretches a word with a salt",
        "import hashlib\n\ndef F(word, salt):\n"
        '    return hashlib.pbkdf2_hmac("sha256", word, salt, 800000).hex()',
        'self.assertNotEqual(F(b"word", b"one"), F(b"word", b"two"))',
        ('F(b"a", b"b")[:8]', "9fb01f6e"),
        "word, salt, ",
        "word, word, ",
    ),
)

MODULE = '"""{package}: {says}."""\n{body}\n'
TEST = """\
import unittest
from {package}.{name} import {name}

class Test(unittest.TestCase):
    def test_{name}(self):
        {test}
"""
RUNNER = '''\
#!/usr/bin/env -S python3 -B -S
"""Runs the tests of {package}; one line each."""
import sys
import unittest


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.bad = ""

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.bad = "failed"

    def addError(self, test, error):
        super().addError(test, error)
        self.bad = error[0].__name__

    def stopTest(self, test):
        super().stopTest(test)
        print(test._testMethodName, self.bad or "ok")


result = Result()
unittest.defaultTestLoader.discover(sys.path[0] + "/tests").run(result)
sys.exit(not result.wasSuccessful())
'''


class TestSuite:
    name = "test_suite"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        package = n.pair()
        names = sorted(symbol(n) for _ in range(3))
        functions = dict(zip(names, n.rng.sample(KINDS, len(names)), strict=True))
        bad = n.choice(names)
        kind = functions[bad]
        files = {"run_tests.py": RUNNER.format(package=package)}
        for name, k in functions.items():
            body, test = (text.replace("F(", f"{name}(") for text in (k.body, k.test))
            files[f"{package}/{name}.py"] = MODULE.format(package=package, says=k.says, body=body)
            files[f"tests/test_{name}.py"] = TEST.format(package=package, name=name, test=test)
        source = f"{package}/{bad}.py"
        kept = {path: text for path, text in files.items() if path != source}
        files[source] = files[source].replace(kind.right, kind.wrong)
        instruction = n.choice(
            [
                f"A test of {package} fails. Repair the function so that ./run_tests.py passes.",
                f"Run ./run_tests.py and repair the function of {package} whose test fails.",
            ]
        )
        first, read, reread = n.chance(0.4), n.chance(0.4), n.chance(0.6)

        def expert() -> Expert:
            if first:
                yield look(n, "the package", f"ls {package}")
            yield act(n, "run the tests", "./run_tests.py")
            if read:
                yield see(n, "the test", f"tail -n 1 tests/test_{bad}.py")
            yield see(n, "the function", f"cat {source}")
            yield act(n, "repair it", f"sed -i 's/{kind.wrong}/{kind.right}/' {source}")
            if reread:
                yield check(n, "the function", f"cat {source}")
            yield check(n, "the tests", "./run_tests.py")
            yield done(n)

        return GeneratedTask(
            self.name,
            seed,
            instruction,
            files,
            _hidden(source, bad, kind) + "".join(file_is(path, text) for path, text in kept.items()),
            expert,
            executable=frozenset({"run_tests.py"}),
        )


def _hidden(source: str, name: str, kind: Kind) -> str:
    """The function, taken from its file, gives the right value for an argument the suite does not use."""
    expression, value = kind.hidden
    load = f"import runpy; F = runpy.run_path('{source}')['{name}']; print({expression})"
    return output_is(f"python3 -B -I -S -c {shlex.quote(load)}", value)
