"""What runs inside a container for the host: bash texts, and the words that they exchange with it.

All goes over the three streams of `docker exec`, so places in them are marked: NUL, a token that the host
drew, a space, a text, NUL. A token is used once and comes over standard input when it is needed: whatever a
command prints, it is not taken for the end of the command, and one that digs for its token deceives itself
alone.

Each mark is in both outputs, at its place in what a command prints; standard output's has the text.
"""

from __future__ import annotations

_SUPERVISOR = r"""
IFS= builtin read -r -d '' token || exit 125;
mode=$1 cwd=$2; shift 2; unset SHLVL OLDPWD;
exec 3>&1 4>&2 5<> <(:) 6<> <(:) >/dev/null 2>&1;
cat <&5 >&3 3>&- 4>&- 5>&- 6>&- & relays=$!;
cat <&6 >&4 3>&- 4>&- 5>&- 6>&- & relays+=" $!";
exec 3>&- 4>&-;
(
  [[ $mode == shell ]] || exec </dev/null;
  cd -- "$cwd" || { [[ $mode == shell ]] && cd /; } || { echo "$cwd: no such folder" >&6; exit 126; };
  read -r since _ < /proc/uptime;
  printf '\0%s begin %s %s\0' "$token" "$BASHPID" "${since/./}" >&5;
  printf '\0%s \0' "$token" >&6;
  unset OLDPWD;
  if type -P setsid; then set -- setsid "$@"; fi;
  exec "$@" >/dev/fd/5 2>/dev/fd/6 5>&- 6>&-
);
status=$?;
printf '\0%s ended %s\0' "$token" "$status" >&5;
printf '\0%s \0' "$token" >&6;
while IFS= builtin read -r -d '' _; do :; done;
cat </dev/fd/5 >/dev/null 5>&- 6>&- &
cat </dev/fd/6 >/dev/null 5>&- 6>&- &
kill $relays
"""
SUPERVISOR = " ".join(_SUPERVISOR.split())
"""Starts a program in a session of its own, and says when (hundredths of a second since boot), as which
PID, and how it ended. Arguments: `shell` (which reads standard input) or `run`, the folder, the program and
its arguments.

The program writes to pipes of its own (opened for reading and writing, as bash can make no other), because
Docker waits seconds for whatever holds those of `docker exec`, and the next `docker exec` with it. When the
host has heard all and closes standard input, what runs on in the background writes to nobody, and is not
ended by that."""

_SHELL = r"""
unset __shell;
RANDOM=1;
exec 200<&0 201>&1 202>&2 </dev/null;
__restore() { return "$1"; };
while :; do
  while {
    __status=$?;
    IFS= builtin read -r -d '' -u 200 __token || builtin exit;
    builtin printf '\0%s done %s %s\0' "$__token" "$__status" "${PWD-}" >&201;
    builtin printf '\0%s \0' "$__token" >&202;
    IFS= builtin read -r -d '' -u 200 __token || builtin exit;
    IFS= builtin read -r -d '' -u 200 __command || builtin exit;
    IFS=' ' builtin read -r __since __rest < /proc/uptime;
    builtin printf '\0%s since %s\0' "$__token" "${__since/./}" >&201;
    builtin printf '\0%s \0' "$__token" >&202;
    unset __token __since __rest;
  } 2>/dev/null; do
    { [[ $- == *e* ]] || __restore "$__status"; } 2>/dev/null;
    builtin eval "$__command" </dev/null 200<&- 201>&- 202>&-;
  done;
done
"""
SHELL = " ".join(_SHELL.split())
"""The persistent shell; see `tasks.sandbox.programs` for the idea. Host to shell, each ended by NUL: a
token; then for each command a token, the command, and the token of its end."""
SHELL_ARGV = ("bash", "-c", 'eval "$__shell"', "bash")
"""How it is started, with SHELL in the environment as `__shell`."""

_KILL = r"""
root=$1 since=$2;
(( root )) && kill -STOP "$root" 2>/dev/null;
while :; do
  unset parent began main; declare -A parent began; main=;
  for folder in /proc/[0-9]*; do
    text=; IFS= read -r -d '' text 2>/dev/null < "$folder/stat"; [[ $text ]] || continue;
    pid=${folder#/proc/}; set -- ${text##*) };
    [[ $1 == Z ]] && continue;
    parent[$pid]=$2 began[$pid]=${20};
    (( $2 == 1 )) || continue;
    if [[ ! $main ]] || (( ${20} < began[$main] || (${20} == began[$main] && pid < main) ));
    then main=$pid; fi;
  done 2>/dev/null;
  wanted=();
  for pid in "${!began[@]}"; do
    (( pid == 1 || pid == $$ || pid == root || began[$pid] < since )) && continue;
    top=$pid;
    while (( top != root && ${parent[$top]:-0} > 1 )); do top=${parent[$top]}; done;
    if (( top == root )); then wanted+=("$pid");
    elif (( began[$pid] > since && top != main && top != $$ )); then
      (( root && ${parent[$top]:-0} != 1 )) || wanted+=("$pid");
    fi;
  done;
  (( ${#wanted[@]} )) || break;
  kill -KILL "${wanted[@]}" 2>/dev/null;
done;
(( root )) && kill -KILL "$root" 2>/dev/null;
exit 0
"""
KILL = " ".join(_KILL.split())
"""Kills the process `root`, what it started at or after `since`, and what else began later and has no
parent left. Another `docker exec` and the container's own main process, with what they started, are spared;
with root 0 only the main process is. (Main process: the first child of PID 1, which is Docker's init.)"""
