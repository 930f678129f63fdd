"""Names and values of the built-in tasks: plain words, joined in pairs that the two splits do not share.

A pair of words belongs to evaluation when its hash says so, and to training otherwise; every generated
file holds at least one pair, so no file of an evaluation task is ever seen in training.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import TypeVar

from tasks.families.base import EVAL_SEED

T = TypeVar("T")

WORDS: tuple[str, ...] = tuple(
    """
    acorn amber anchor apple april arrow aspen atlas autumn badge baker bamboo banjo barley basil basin
    beacon berry birch bishop blaze blossom bottle boulder branch breeze bridge bronze brook bucket butter
    button cabin cactus camel candle canoe canyon carbon cargo carpet castle cedar cellar chalk cherry
    chisel cider cinder circle citrus clover cobalt cocoa comet compass copper coral cotton cradle crane
    crater cricket crown crystal curtain cypress daisy dancer dawn delta desert diamond dolphin donkey
    dragon drum dune eagle elder elm ember emerald engine falcon feather fennel fern fiddle finch
    flame flint forest fossil fountain fox frost galaxy garden garnet ginger glacier globe goblet granite
    grape gravel grove guitar hammer harbor harvest hazel heron hickory hollow honey horizon hunter indigo
    iris iron island ivory ivy jacket jaguar jasmine jewel jungle juniper kayak kernel kettle kiwi koala
    ladder lagoon lantern laurel lava lemon lilac lily linen lizard lobster lotus lunar magnet mango maple
    marble meadow melon mercury mesa meteor mill mint mirror mocha monsoon moose mosaic moss motor nectar
    needle nest nickel north nutmeg oasis oat ocean olive onyx opal orange orbit orchid osprey otter oyster
    paddle palace palm panda panther paper parrot peach pearl pebble pecan pepper phoenix piano pigeon pilot
    pine planet plaza plum pocket polar pony poplar prairie prism pumpkin quail quartz rabbit radar raven
    reef ribbon ridge river robin rocket rose ruby saddle saffron sage salmon sapphire satin saturn scarlet
    shadow shell silver slate smoke snow socket solar spark sparrow spice spring spruce stone storm stream
    sugar summit sunset swan tango teal temple thistle thunder tiger timber topaz torch tower trail tulip
    tunnel turtle valley vanilla velvet vessel violet walnut water whale wheat willow winter wolf wood
    yarrow zebra zenith zinc
    """.split()  # noqa: SIM905
)
"""Every word is lower-case letters only, so that the tiny tokenizer can give each one token."""


def pair_is_eval(first: str, second: str) -> bool:
    """One pair in eight is kept for evaluation."""
    return zlib.crc32(f"{first} {second}".encode()) % 8 == 0


class Names:
    """Seeded supplier of words, pairs and numbers for one task; no word is given twice."""

    def __init__(self, family: str, seed: int) -> None:
        self._id = f"{family}/{seed}"
        self.rng = random.Random(self._id)
        self._eval = seed >= EVAL_SEED
        self._left = list(WORDS)
        self.rng.shuffle(self._left)

    def word(self) -> str:
        return self._left.pop()

    def words(self, n: int) -> list[str]:
        return [self.word() for _ in range(n)]

    def pair(self, joint: str = "_") -> str:
        """Two words that form a pair of this split, e.g. `amber_fox`."""
        first = self._left.pop()
        for i in range(len(self._left) - 1, -1, -1):
            if pair_is_eval(first, self._left[i]) is self._eval:
                return f"{first}{joint}{self._left.pop(i)}"
        raise RuntimeError("the word list is used up; ask for fewer names in one task")

    def number(self, low: int = 10, high: int = 999) -> int:
        return self.rng.randint(low, high)

    def ranked(self, count: int) -> tuple[list[int], str, int]:
        """`count` different small numbers, one of `largest` and `smallest`, and the index of that one."""
        numbers = self.rng.sample(range(1, 100), count)
        rank = self.choice(["largest", "smallest"])
        return numbers, rank, numbers.index(max(numbers) if rank == "largest" else min(numbers))

    def choice(self, items: Sequence[T]) -> T:
        return self.rng.choice(items)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def wording(self, options: Sequence[str], key: str) -> str:
        """One of several ways to say a thing; depends on the task and `key` only, not on earlier draws."""
        return options[zlib.crc32(f"{self._id}/{key}".encode()) % len(options)]
