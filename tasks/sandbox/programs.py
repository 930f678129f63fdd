"""The two bash programs inside a sandbox, and the words they exchange with the host.

`INIT` is PID 1: it keeps the namespaces alive, runs one shell after another, and when a shell ends,
however it ends, kills every process left, waits until they are gone and reports. No command can signal it
(the kernel shields the first process of a PID namespace from its own children) or reach into it (see
`tasks.sandbox.bubblewrap`).

`SHELL` is the agent's persistent shell. Each time round its loop it reports the last exit status and
folder, then reads and evaluates the next command, with the control socket closed for whatever the
command starts. (Reporting in the loop's condition makes a command's own `continue` harmless.)

Host to sandbox, fields ended by NUL: `files SIZE` + tar bytes, `tests SIZE` + tar bytes, `shell CWD`,
`resume`; `run COMMAND` for the shell. Sandbox to host, ended by NUL: `ready`, `unpacked STATUS`,
`ended STATUS` from PID 1; `done STATUS CWD` from the shell, the first one when it starts.
After `ended`, PID 1 skips what was meant for the shell, up to `resume`.
"""

from __future__ import annotations

INIT = r"""
exec 200<&0 202>&2 0</dev/null 2>/dev/null
umask 022
field() { IFS= read -r -d '' -u 200 "$1" || exit 0; }
unpack() {
  head -c "$1" <&200 | tar -x -p --no-same-owner --delay-directory-restore -f - -C "$2" 2>&202
  printf 'unpacked %s\0' $(($? | ${3-0})) >&200
}
printf 'ready\0' >&200
while :; do
  field verb
  case $verb in
    files) field size; unpack "$size" /work ;;
    tests)
      field size
      cd /
      chmod -R u+rwX /tests /logs
      find /tests /logs -mindepth 1 -delete 2>&202 && mkdir -p /logs/verifier
      unpack "$size" /tests $? ;;
    shell)
      field cwd
      [[ $PWD == "$cwd" ]] || cd -- "$cwd" || cd /work || cd /
      unset OLDPWD
      setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
        bash -c 'eval "$__shell"' bash 2>&202 202>&-
      status=$?
      kill -9 -1
      until set -- /proc/[0-9]*; [[ $# == 1 ]]; do :; done
      printf 'ended %s\0' $status >&200
      until [[ $verb == resume ]]; do field verb; done ;;
  esac
done
"""

_SHELL = r"""
unset __shell __init;
ulimit -c 0 -n 256 -f "$__file_kb" -v "$__memory_kb" -u "$__processes" || exit 125;
unset __file_kb __memory_kb __processes;
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
