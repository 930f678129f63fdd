"""What README and docs show can be done as it is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from obsspec.cli import app
from orchestrator.schema import RolloutRequest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BODY = re.compile(r"-d '(\{.*?\})'", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"^(?:\.venv/bin/)?obsspec ((?:[a-z-]+ ?)+)", re.MULTILINE)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def bodies() -> Iterator[str]:
    for page in PAGES:
        yield from BODY.findall(page.read_text())


def test_request_bodies_are_valid() -> None:
    found = list(bodies())
    assert found
    for body in found:
        RolloutRequest.model_validate_json(body)


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


@pages
def test_commands_exist(page: Path) -> None:
    for words in COMMAND.findall(page.read_text()):
        command = get_command(app)
        for word in words.split():
            commands = getattr(command, "commands", None)
            if commands is None:
                break
            assert word in commands, f"obsspec {words}"
            command = commands[word]
