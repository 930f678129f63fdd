"""Flags of the instructions: which there are, which repeat, which are switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tasks.dockerfile.errors import DockerfileError, shown

_SWITCHES = frozenset({"link", "parents", "keep-git-dir", "unpack"})
_REPEATED = frozenset({"mount", "exclude", "device"})
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "FROM": ("platform",),
    "RUN": ("mount", "network", "security", "device"),
    "COPY": ("from", "chown", "chmod", "link", "parents", "exclude"),
    "ADD": ("chown", "chmod", "link", "keep-git-dir", "checksum", "unpack", "exclude"),
    "HEALTHCHECK": ("interval", "timeout", "start-period", "start-interval", "retries"),
}


@dataclass(frozen=True)
class Flags:
    """The flags of one instruction, checked."""

    values: Mapping[str, tuple[str, ...]]

    def get(self, name: str, default: str = "") -> str:
        return self.values[name][-1] if name in self.values else default

    def all(self, name: str) -> tuple[str, ...]:
        return self.values.get(name, ())

    def switch(self, name: str) -> bool | None:
        return None if name not in self.values else self.get(name) == "true"

    def last(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self.values.items()}


def read_flags(keyword: str, flags: list[str]) -> Flags:
    """Raises DockerfileError for a flag that the instruction does not have, or that lacks its value."""
    known = _KNOWN.get(keyword, ())
    values: dict[str, tuple[str, ...]] = {}
    for flag in flags:
        name, has_value, value = flag.partition("=")
        if name not in known:
            close = get_close_matches(name[:40], known, n=1)
            hint = f"; did you mean --{close[0]}?" if close else ""
            raise DockerfileError(f"{keyword} has no flag {shown('--' + name)}{hint}")
        if name in values and name not in _REPEATED:
            raise DockerfileError(f"{keyword} has the flag --{name} twice; keep one")
        if name in _SWITCHES:
            value = value.lower() if has_value else "true"
            if value not in ("true", "false"):
                raise DockerfileError(f"the flag --{name} of {keyword} must be true or false")
        elif not has_value:
            raise DockerfileError(f"the flag --{name} of {keyword} needs a value; write --{name}=VALUE")
        values[name] = (*values.get(name, ()), value)
    return Flags(values)
