"""A `docker` program for tests: a container is a namespace of processes over the host's programs.

It knows what `tasks.sandbox.docker` asks for and no more, keeps its state in the folder `$FAKE_DOCKER`, and
writes each call to `calls` there, one JSON list a line. A file `fails-VERB` there, if it exists, is what
that verb complains of before it fails.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, NoReturn

STATE = Path(os.environ["FAKE_DOCKER"])
LIKE_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
FIRST = """
set -e; cd "$1"
for name in usr etc dev; do mount --rbind "/$name" "$name"; done
mount -o remount,bind,ro usr; mount -o remount,bind,ro etc
mount -t proc proc proc
hostname sandbox
{ env -i PATH="$PATH" HOSTNAME=sandbox chroot . "${@:2}" </dev/null >/dev/null 2>&1 & }; wait
"""
"""The first process: a root file system, the main process in it, and an end to orphans."""


def main(arguments: list[str]) -> int:
    STATE.mkdir(exist_ok=True)
    with (STATE / "calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    if arguments[0] in ("image", "container"):
        arguments = [arguments[0] + "_" + arguments[1], *arguments[2:]]
    verb, rest = arguments[0], arguments[1:]
    if (complaint := STATE / f"fails-{verb}").exists() and not (verb == "exec" and not killing(rest)):
        fail(complaint.read_text())
    return int(globals()[f"do_{verb}"](*split(rest)) or 0)


def split(rest: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options with their values, and what comes after them."""
    options: dict[str, list[str]] = {}
    while rest and rest[0].startswith("--"):
        name, _, value = rest.pop(0)[2:].partition("=")
        if name == "user" and not value:
            value = rest.pop(0)
        options.setdefault(name, []).append(value)
    return options, rest


def do_run(options: dict[str, list[str]], rest: list[str]) -> None:
    name, image = options["name"][0], rest[0]
    if "storage-opt" in options:
        said = "--storage-opt is supported only for overlay over xfs"
        fail(f"docker: Error response from daemon: {said}\n\nRun 'docker run --help' for more information")
    config = load("images", image)
    folder = STATE / "containers" / name
    folder.mkdir(parents=True)
    shutil.copytree(STATE / "images" / f"{image}.files", folder / "root", symlinks=True)
    labels = {**config["Labels"], **dict(label.split("=", 1) for label in options["label"])}
    env = [*config["Env"], *options.get("env", [])]
    argv = [*(config["Entrypoint"] or [] if "entrypoint" not in options else []), *rest[1:]]
    fsize = [value.split("=")[1] for value in options.get("ulimit", []) if value.startswith("fsize=")]
    save("containers", name, {**config, "Labels": labels, "Env": env, "argv": argv, "fsize": fsize})
    begin(name)
    print(name)


def begin(name: str) -> None:
    root, config = STATE / "containers" / name / "root", load("containers", name)
    spaces = ["unshare", *LIKE_ROOT, "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--net"]
    outer = subprocess.Popen(
        [*spaces, "bash", "-c", FIRST, "bash", str(root), *config["argv"]],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(root.parent / "log").open("wb"),
        start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while not (first := children.read_text().split()) or not main_process(int(first[0])):
        if outer.poll() is not None:
            fail((root.parent / "log").read_text())
        time.sleep(0.005)
    save("containers", name, {**config, "first": int(first[0]), "outer": outer.pid})


def main_process(first: int) -> bool:
    """Whether the first process has come so far as to have a child that is another program."""
    try:
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return any(os.readlink(f"/proc/{child}/root") != "/" for child in children)
    except OSError:
        return False


def do_exec(options: dict[str, list[str]], rest: list[str]) -> int:
    name, argv = rest[0], rest[1:]
    config = load("containers", name)
    enter = [
        "nsenter",
        f"--target={config['first']}",
        *AS_ROOT,
        "--pid",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
    ]
    user = options.get("user", [""])[0]
    ids = subprocess.run(["id", "-u", user], capture_output=True, text=True).stdout.strip() if user else "0"
    change = [f"--userspec={ids}:{ids}"] if ids not in ("0", "") else []
    env = {"PATH": os.environ["PATH"], "HOME": "/root", "HOSTNAME": "sandbox"}
    env |= dict(entry.split("=", 1) for entry in [*config["Env"], *options.get("env", [])])
    stdin = None if "interactive" in options else subprocess.DEVNULL
    root = str(STATE / "containers" / name / "root")
    inside = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), "chroot", *change, root, *argv]
    if "workdir" in options:
        inside[-len(argv) :] = ["sh", "-c", 'cd "$0" && exec "$@"', options["workdir"][0], *argv]
    if config["fsize"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(config["fsize"][0]),) * 2)
    if "detach" in options:
        null = subprocess.DEVNULL
        subprocess.Popen([*enter, *inside], stdin=null, stdout=null, stderr=null, start_new_session=True)
        return 0
    code = subprocess.run([*enter, *inside], stdin=stdin, check=False).returncode
    return code if code >= 0 else 128 - code


def killing(rest: list[str]) -> bool:
    return any("kill -KILL" in word for word in rest)


def do_cp(options: dict[str, list[str]], rest: list[str]) -> None:
    source, target = rest
    if source == "-":
        place = inside(target)
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            archive.extractall(place, filter="fully_trusted")
        return
    place = inside(source)
    if "follow-link" in options and place.is_symlink():
        place = inside(f"{source.partition(':')[0]}:{os.readlink(place)}")
    if not os.path.lexists(place):
        fail(f"Error response from daemon: Could not find the file {source} in container")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(place, place.name)
    sys.stdout.buffer.write(buffer.getvalue())


def inside(place: str) -> Path:
    name, _, path = place.partition(":")
    load("containers", name)
    return STATE / "containers" / name / "root" / path.lstrip("/")


def do_commit(_: dict[str, list[str]], rest: list[str]) -> None:
    name, image = rest
    shutil.copytree(STATE / "containers" / name / "root", STATE / "images" / f"{image}.files", symlinks=True)
    config = load("containers", name)
    save(
        "images",
        image,
        {key: config[key] for key in ("Env", "User", "WorkingDir", "Entrypoint", "Volumes", "Labels")},
    )


def do_restart(_: dict[str, list[str]], rest: list[str]) -> None:
    end(rest[0])
    begin(rest[0])


def do_rm(_: dict[str, list[str]], rest: list[str]) -> None:
    for name in rest:
        if (STATE / "containers" / name).exists():
            end(name)
            (STATE / f"containers/{name}.json").unlink()
            shutil.rmtree(STATE / "containers" / name)


def end(name: str) -> None:
    outer = load("containers", name).get("outer")
    if outer:
        os.kill(outer, signal.SIGKILL)
        while Path(f"/proc/{outer}").exists() and "Z" not in Path(f"/proc/{outer}/stat").read_text().split():
            time.sleep(0.005)


def do_rmi(_: dict[str, list[str]], rest: list[str]) -> None:
    for name in rest:
        (STATE / f"images/{name}.json").unlink()
        shutil.rmtree(STATE / "images" / f"{name}.files")


def do_ps(_: dict[str, list[str]], rest: list[str]) -> None:
    print("\n".join(names("containers")))


def do_images(_: dict[str, list[str]], rest: list[str]) -> None:
    print("\n".join(name for name in names("images") if load("images", name)["Labels"]))


def do_image_inspect(options: dict[str, list[str]], rest: list[str]) -> None:
    show("images", options["format"][0], rest)


def do_container_inspect(options: dict[str, list[str]], rest: list[str]) -> None:
    show("containers", options["format"][0], rest)


def show(kind: str, form: str, rest: list[str]) -> None:
    for name in rest:
        config = load(kind, name)
        print(json.dumps(config) if "json" in form else f"{name} {config['Labels'].get('obsspec.owner', '')}")


def do_build(options: dict[str, list[str]], rest: list[str]) -> None:
    if "FROM nothing" in Path(options["file"][0]).read_text():
        fail("Step 1/2 : FROM nothing\npull access denied for nothing, repository does not exist")
    make_image(options["tag"][0])


def do_make_image(_: dict[str, list[str]], rest: list[str]) -> None:
    """Not one of Docker's: an image over the host's programs."""
    make_image(*rest)


def make_image(name: str) -> None:
    folder = STATE / "images" / f"{name}.files"
    folder.mkdir(parents=True)
    for place in ("usr", "etc", "dev", "proc", "tmp", "root"):
        (folder / place).mkdir()
    (folder / "tmp").chmod(0o1777)
    for link in ("bin", "lib", "lib64", "sbin"):
        (folder / link).symlink_to(f"usr/{link}")
    save(
        "images",
        name,
        {"Env": [], "User": "", "WorkingDir": "/work", "Entrypoint": None, "Volumes": None, "Labels": {}},
    )
    (folder / "work").mkdir()


def names(kind: str) -> list[str]:
    return sorted(path.name.removesuffix(".json") for path in (STATE / kind).glob("*.json"))


def load(kind: str, name: str) -> dict[str, Any]:
    try:
        return dict(json.loads((STATE / kind / f"{name}.json").read_text()))
    except FileNotFoundError:
        fail(f"Error response from daemon: No such {kind.removesuffix('s')}: {name}")


def save(kind: str, name: str, value: dict[str, Any]) -> None:
    (STATE / kind).mkdir(parents=True, exist_ok=True)
    file = STATE / kind / f"{name}.json"
    file.with_suffix(".new").write_text(json.dumps(value))
    os.replace(file.with_suffix(".new"), file)


def fail(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
