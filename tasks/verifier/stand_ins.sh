#!/bin/bash
# Stands in, while a task is verified, for the programs with which its test.sh would download a test runner: uv, uvx,
# pip, pipx, pytest, curl, wget and apt-get. It is called by one of those names. What it cannot stand in for goes to
# the real program of that name; where that fails too, `failures` says so, because the verdict may then mean nothing.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
name=${0##*/}
site=$here/site

# Note that a command of test.sh itself could not be done. What the tests run may fail as it likes.
failed() {
  local caller script='^([^ ]*/)?(ba|da)?sh .*tests/[^ ]*[.]sh'
  caller=$(tr '\0' ' ' <"/proc/$PPID/cmdline")
  [[ $caller =~ $script ]] && echo "$*" >>"$here/failures"
} 2>/dev/null

# The real program of a name, as a path.
real_path() {
  local folder
  while IFS= read -r -d : folder; do
    [ "$(readlink -f "$folder")" != "$here" ] && [ -x "$folder/$1" ] && [ ! "$folder/$1" -ef "$here/$1" ] &&
      echo "$folder/$1" && return
  done <<<"$PATH:"
  return 1
}

real() {
  local path
  path=$(real_path "$name") && exec "$path" "$@"
  echo "$name: command not found" >&2
  failed "$name: command not found"
  exit 127
}

python_path() {
  type -P python3 || type -P python
}

python() {
  local path
  if path=$(python_path); then
    [[ :${PYTHONPATH-}: == *:$site:* ]] || export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
    exec "$path" "$@"
  fi
  echo "$name: python3: command not found" >&2
  failed "python3: command not found"
  exit 127
}

# What uv and pipx would run, from the packages of the stand-in.
run() {
  local program=${1##*/}
  program=${program%%@*}
  case $program in
    '') exit 0 ;;
    pytest | py.test) shift; python -m pytest "$@" ;;
    python | python[0-9]*) shift; python "$@" ;;
    *.py) python "$@" ;;
  esac
  if [ -x "$site/bin/$program" ]; then shift; python "$site/bin/$program" "$@"; fi
  type -P "$1" >/dev/null || failed "$1: command not found"
  exec "$@"
}

# Sets `rest`: what stands after the options of uvx, `uv run` and their like.
after_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      -m | --module) shift; rest=(python -m "$@"); return ;;
      -p | --python | -w | --with | --from | --with-requirements | --with-editable | --spec | --pip-args | --index | \
        --index-url | --extra-index-url | --project | --directory | --extra | --group | --env-file) shift 2 ;;
      --) shift; break ;;
      -*) shift ;;
      *) break ;;
    esac
  done
  rest=("$@")
}

# Sets `asked` to the requirements among the arguments of an `install`, those in files included.
asked=()
read_asked() {
  local line
  while [ $# -gt 0 ]; do
    case $1 in
      -r | --requirement | --requirements)
        while read -r line; do
          line=${line%%#*}
          [ -n "${line// /}" ] && read_asked "${line//[[:space:]]/}"
        done <"${2-/dev/null}"
        shift ;;
      -t | --target | -i | --index-url | --extra-index-url | -p | --python | --prefix | -c | --constraint) shift ;;
      -e | --editable) asked+=("/$2"); shift ;;
      -*) ;;
      *) asked+=("$1") ;;
    esac
    shift
  done
}

# Whether each requirement is among the packages, in the right version where exactly one is asked for.
has() {
  local each wanted version info base found
  for each; do
    each=${each//[\"\' ]/}
    each=${each%%;*}
    wanted=${each%%[=<>!~[@]*}
    wanted=${wanted,,}
    wanted=${wanted//[-.]/_}
    [[ $wanted == uv || $wanted == pip || $wanted == setuptools || $wanted == wheel ]] && continue
    version=
    [[ $each == *==* ]] && version=${each##*==}
    found=
    for info in "$site"/*.dist-info; do
      base=$(basename "${info%.dist-info}")
      base=${base,,}
      [[ ${base%%-*} == "$wanted" && (-z $version || ${base#*-} == $version) ]] && found=1
    done
    [ -n "$found" ] || return 1
  done
}

# `pip install`, by whatever name.
install() {
  local pip status
  read_asked "$@"
  has "${asked[@]}" && exit 0
  export PIP_RETRIES=${PIP_RETRIES-1}
  if pip=$(real_path pip3 || real_path pip); then "$pip" install "$@"; else (python -m pip install "$@"); fi
  status=$?
  [ $status = 0 ] || failed "$name could not install ${asked[*]}"
  exit $status
}

# What uv's installer leaves behind.
installer() {
  cat <<SCRIPT
#!/bin/sh
bin=\${UV_INSTALL_DIR:-\${XDG_BIN_HOME:-\$HOME/.local/bin}}
mkdir -p "\$bin" "\$HOME/.cargo" || exit 1
printf 'export PATH="%s:%s:\$PATH"\n' '$here' "\$bin" | tee "\$bin/env" >"\$HOME/.cargo/env"
ln -sf '$here/uv' '$here/uvx' "\$bin/"
SCRIPT
}

# curl and wget: sets `url` and `output` (`-`: standard output).
read_download() {
  url='' output=-
  local file_of_url=''
  [ "$name" = wget ] && file_of_url=1
  while [ $# -gt 0 ]; do
    case $name$1 in
      curl-o | curl--output | wget--output-document) output=${2-} file_of_url=''; shift ;;
      curl--output=* | wget--output-document=*) output=${1#*=} file_of_url='' ;;
      curl-O | curl--remote-name) file_of_url=1 ;;
      wget-*O) [[ $1 != --* ]] && output=${2-} file_of_url='' && shift ;;
      wget-*O?*) [[ $1 != --* ]] && output=${1#*O} file_of_url='' ;;
      curl-[a-zA-Z]*o) output=${2-} file_of_url=''; shift ;;
      curl-[!-]*O* | curl-O*) file_of_url=1 ;;
      curl-* | wget-*) ;;
      *) url=$1 ;;
    esac
    shift
  done
  [ -z "$file_of_url" ] || { output=${url##*/}; output=${output:-index.html}; }
}

case $name in
  uvx) after_options "$@"; run "${rest[@]}" ;;
  pipx)
    case ${1-} in
      run) shift; after_options "$@"; run "${rest[@]}" ;;
      install | inject) read_asked "${@:2}"; has "${asked[@]}" && exit 0 ;;
      ensurepath) exit 0 ;;
    esac
    real "$@" ;;
  uv)
    while [[ ${1-} == -* && ${1-} != --version ]]; do shift; done
    case "${1-} ${2-}" in
      "tool install"* | "python "* | "init "* | "sync "* | "lock "* | "self "* | "cache "* | "--version "* | "version "*)
        exit 0 ;;
      "tool run"*) after_options "${@:3}"; run "${rest[@]}" ;;
      "run "*) after_options "${@:2}"; run "${rest[@]}" ;;
      "venv "*)
        after_options "${@:2}"
        python -m venv --without-pip "${rest[0]:-.venv}" ;;
      "add "*) install "${@:2}" ;;
      "pip install"*) install "${@:3}" ;;
      "pip "*) python -m pip "${@:2}" ;;
    esac
    echo "uv: no stand-in for: uv $*" >&2
    failed "uv: no stand-in for: uv $*"
    exit 1 ;;
  pytest | py.test) python -m pytest "$@" ;;
  pip | pip3)
    [ "${1-}" = install ] && install "${@:2}"
    real "$@" ;;
  curl | wget)
    read_download "$@"
    if [[ $url == *astral.sh/uv* || $url == *github.com/astral-sh/uv/*install* ]]; then
      if [ "$output" = - ]; then installer; else installer >"$output"; fi
      exit
    fi
    real "$@" ;;
  apt-get | apt)
    verb='' missing=()
    for each; do
      case $each in
        -*) ;;
        update | upgrade | install | clean | autoremove) [ -n "$verb" ] || verb=$each ;;
        curl | wget | ca-certificates | python3-pip | pipx | python3-pytest) ;;
        python3-venv) (python -c 'import ensurepip') 2>/dev/null || missing+=("$each") ;;
        *)
          type -P "$each" >/dev/null ||
            [[ $(dpkg-query -W -f='${Status}' "$each" 2>/dev/null) == *" installed" ]] || missing+=("$each") ;;
      esac
    done
    [ "$verb" = update ] && exit 0
    [ "$verb" = install ] || real "$@"
    [ ${#missing[@]} = 0 ] && exit 0
    path=$(real_path "$name") || real "$@"
    "$path" -qq update >/dev/null 2>&1
    "$path" "$@"
    status=$?
    [ $status = 0 ] || failed "$name could not install ${missing[*]}"
    exit $status ;;
esac
