"""Lines of `tests/check.sh`: each exits non-zero unless the world is as the task asks."""

from __future__ import annotations

import shlex


def file_is(path: str, text: str) -> str:
    """The file holds exactly `text` (trailing newlines aside)."""
    return f'[ "$(cat {shlex.quote(path)})" = {shlex.quote(text.rstrip())} ]\n'


def output_is(command: str, text: str) -> str:
    """The command prints exactly `text` (trailing newlines aside)."""
    return f'[ "$({command})" = {shlex.quote(text.rstrip())} ]\n'
