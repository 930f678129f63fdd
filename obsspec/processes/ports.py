"""Ports on this machine: which are taken, and free ones for those who ask for none in particular."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from obsspec.config import ROLES, Config
from obsspec.errors import ProcessError

_RANGE = range(20_000, 32_000)


def require_free(name: str, host: str, port: int) -> None:
    """Raises ProcessError where nothing can listen on that address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ProcessError(
                f"{name} cannot listen on {host}:{port} ({error.strerror}): "
                f"stop what uses that port, or choose another in the configuration"
            ) from error


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listened on a moment ago.

    Below the ports that the kernel hands out for connections, so that none takes it meanwhile.
    """
    for port in random.sample(_RANGE, 100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise ProcessError(f"no free port on {host}: a hundred between {_RANGE[0]} and {_RANGE[-1]} are taken")


def assign(config: Config) -> Config:
    """The same configuration with a free port for each port 0; backends follow their engines."""
    data = config.model_dump(mode="json")
    service = data["orchestrator"]
    for role in ROLES:
        engine = getattr(config.engines, role)
        if engine is not None and engine.port == 0:
            port = free_port(engine.host)
            data["engines"][role]["port"] = port
            backend = service[role]
            if backend is not None and backend.get("url") == engine.url:
                backend["url"] = f"http://{engine.host}:{port}"
    if service["port"] == 0:
        service["port"] = free_port(service["host"])
    return Config.model_validate(data)
