"""Variables that a task sets (`env` of its tables): literal texts, or taken from the host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tasks.task import TaskError

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)


def resolve_env(values: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Each value that is as a whole `${NAME}` or `${NAME:-default}`, taken from `host`; others as they are.

    Nothing of the host gets into a sandbox but what `host` holds. Raises TaskError for a name that it lacks.
    """
    resolved = {}
    for key, value in values.items():
        match = _TEMPLATE.fullmatch(value)
        found = value if match is None else host.get(match[1], match[2])
        if found is None:
            raise TaskError(f"{key} = {value!r} needs the variable {match[1] if match else key}: set it")
        resolved[key] = found
    return resolved
