"""The store that tests of built environments share, so that the base of images is made once."""

from __future__ import annotations

from pathlib import Path

import pytest


def shared_layers(factory: pytest.TempPathFactory) -> Path:
    """One folder a session."""
    folder = factory.getbasetemp() / "layers"
    folder.mkdir(exist_ok=True)
    return folder
