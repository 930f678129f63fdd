"""A function that a C compiler works on for half a second or more, and the same function in Python.

`header` defines `MIX(x)`: thousands of steps on an `unsigned`, written out by the preprocessor, so that a
source of five lines is real work for the optimiser.
"""

from __future__ import annotations

from functools import cache

from tasks.families.words import Names

_ROUNDS = 4096
"""Of which each is three statements: about 0.9 s of `gcc -O2`, 0.5 s of `gcc -O1`, and 100 MB."""
_TAKEN = frozenset({"socket", "turtle"})
"""Words that are also names of the C or the Python library."""


def header(tag: str) -> str:
    """Text of `mix.h`; `tag` makes it the only one of its kind."""
    lines = [f"/* {tag} */", "#define R1(x, k) x ^= x >> 7; x *= k; x += x << 3;"]
    size = 1
    while size < _ROUNDS:
        parts = [f"R{size}(x, k + {2 * size * i}u)" for i in range(4)]
        size *= 4
        lines.append(f"#define R{size}(x, k) {' '.join(parts)}")
    return "\n".join([*lines, f"#define MIX(x) R{size}(x, 1u)", ""])


@cache
def mix(x: int) -> int:
    """What `MIX` makes of a 32-bit unsigned number."""
    for k in range(1, 2 * _ROUNDS, 2):
        x ^= x >> 7
        x = x * k & 0xFFFFFFFF
        x = (x + (x << 3)) & 0xFFFFFFFF
    return x


def symbol(n: Names) -> str:
    """A word that can name a function of C and a module of Python."""
    word = n.word()
    return symbol(n) if word in _TAKEN else word
