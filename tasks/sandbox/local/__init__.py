"""Plain processes in a temporary folder: for trusted code only, because it isolates nothing."""

from tasks.sandbox.local.sandbox import LocalSandbox

__all__ = ["LocalSandbox"]
