"""The persistent shell, and the words that it exchanges with the host.

Each time round its loop it reports the last exit status and folder, then reads and evaluates the next
command, with the control socket closed for whatever the command starts. (Reporting in the loop's condition
makes a command's own `continue` harmless.) Host to shell: `run`, then the command, each ended by NUL. Shell
to host, ended by NUL: `done STATUS CWD`, the first one when it starts.
"""

from __future__ import annotations

_SHELL = r"""
unset __shell;
RANDOM=1;
__restore() { return "$1"; };
while :; do
  while {
    __status=$?;
    builtin printf 'done %s %s\0' "$__status" "${PWD-}" >&200;
    IFS= builtin read -r -d '' -u 200 __command || builtin exit;
    IFS= builtin read -r -d '' -u 200 __command || builtin exit;
  } 2>/dev/null; do
    { [[ $- == *e* ]] || __restore "$__status"; } 2>/dev/null;
    builtin eval "$__command" </dev/null 200>&-;
  done;
done
"""
SHELL = " ".join(_SHELL.split())
"""On one line, so that bash counts the lines of a command from 1 in its messages."""
ARGV = ("bash", "-c", 'eval "$__shell"', "bash")
"""How it is started, with SHELL in the environment as `__shell`."""
CONTROL = 200
"""Descriptor of the control socket."""
