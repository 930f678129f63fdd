"""Observations: one canonical text, whatever a command printed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.observation import CUT, TIMED_OUT, canonical, is_empty
from tasks.sandbox.base import ExecResult

noise = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from([b"\x1b", b"[", b"]", b"0;31m", b"\x07", b"a", b" ", b"\n", b"\xff", b"\x1b[1K"])
    ).map(b"".join),
)


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "text"),
    [
        (b"hello\n", b"", 0, "hello\n(exit_code=0)"),
        (b"out\n", b"err\n", 1, "out\nerr\n(exit_code=1)"),
        (b"", b"err", 127, "err\n(exit_code=127)"),
        (b"", b"", 0, "(no output)\n(exit_code=0)"),
        (b" \n\t\n", b"\n", 3, "(no output)\n(exit_code=3)"),
        (b"  a  \n\n b \n", b"", 0, "a  \n\n b\n(exit_code=0)"),
        (b"\xff\xfea", b"", 0, "\ufffd\ufffda\n(exit_code=0)"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b(B\x1bM", b"", 0, "red x\n(exit_code=0)"),
        (b"\x1b\x1b[0m[31mtail\x1b", b"", 0, "[31mtail\n(exit_code=0)"),
        ("größer\n".encode(), b"", 0, "größer\n(exit_code=0)"),
    ],
)
def test_the_form(stdout: bytes, stderr: bytes, code: int, text: str) -> None:
    assert canonical(ExecResult(stdout, stderr, code)) == text


def test_a_long_body_is_cut_at_the_limit_and_says_so() -> None:
    assert canonical(ExecResult(b"x" * 11, b"", 0), limit=10) == f"{'x' * 10}\n{CUT}\n(exit_code=0)"
    assert canonical(ExecResult(b"x" * 10, b"", 0), limit=10) == f"{'x' * 10}\n(exit_code=0)"
    assert canonical(ExecResult(b"x", b"y" * 99, 0), limit=4) == f"x\nyy\n{CUT}\n(exit_code=0)"
    assert canonical(ExecResult(b"x", b"", 0, truncated=True)) == f"x\n{CUT}\n(exit_code=0)"


def test_a_time_out_is_one_fixed_text_however_far_the_command_came() -> None:
    assert {canonical(ExecResult(b"x" * n, b"", 124, timed_out=True)) for n in range(3)} == {TIMED_OUT}


def test_empty_is_the_body_without_output() -> None:
    assert is_empty(canonical(ExecResult(b"\n", b"", 2)))
    assert is_empty(" (no output)\n(exit_code=0)\n")
    assert not is_empty(canonical(ExecResult(b"(no output) here", b"", 0)))
    assert not any(map(is_empty, ("", TIMED_OUT)))


@given(noise, noise, st.integers(0, 255), st.integers(1, 150))
def test_any_output_gives_a_clean_bounded_text(stdout: bytes, stderr: bytes, code: int, limit: int) -> None:
    text = canonical(ExecResult(stdout, stderr, code), limit)
    ending = f"\n(exit_code={code})"
    body = text.removesuffix(ending)
    assert text.endswith(ending)
    assert body
    assert text == text.strip()
    assert body == body.strip()
    assert "\x1b" not in text
    assert len(body) <= max(limit + len(CUT) + 1, len("(no output)"))
    assert text.encode().decode() == text


@given(noise, noise)
def test_what_is_canonical_stays_as_it_is(stdout: bytes, stderr: bytes) -> None:
    body = canonical(ExecResult(stdout, stderr, 0)).removesuffix("\n(exit_code=0)")
    assert canonical(ExecResult(body.encode(), b"", 0)) == f"{body}\n(exit_code=0)"


@pytest.mark.parametrize("piece", [b"\x1b[", b"\x1b]", b"\x1b[0;", b"\x1b", b" \n", b"\x1b[0;31m"])
def test_time_is_linear(piece: bytes) -> None:
    def seconds(repeats: int) -> float:
        result = ExecResult(piece * repeats, b"", 0)
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            canonical(result)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(200_000) < 40 * seconds(20_000) + 0.05
