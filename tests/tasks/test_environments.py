"""Environments built from Dockerfiles without Docker, over the host's own system; no test needs a network."""

from __future__ import annotations

import asyncio
import os
import sys
import tarfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tasks.config import BaseConfig, BuildConfig, SandboxConfig
from tasks.dockerfile import DockerfileError
from tasks.environments import Builder, BuildRefused, Built, Recipe, store
from tasks.environments.bases import normal
from tasks.environments.locks import free_lock
from tasks.sandbox import network
from tasks.sandbox.base import SandboxError, SandboxLimits
from tasks.sandbox.namespace import NamespaceSandbox
from tasks.sandbox.spec import SandboxSpec
from tasks.task import Task
from tests.tasks.layers import shared_layers

root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandboxes may have one user")


@pytest.fixture(scope="session")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of layers that all tests of the session share."""
    return shared_layers(tmp_path_factory)


@pytest.fixture
def config(layers: Path) -> SandboxConfig:
    return SandboxConfig(store=layers, build=BuildConfig(network=False, env=[]))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name, text in {"one.txt": "one\n", "sub/two.txt": "two\n", "sub/three.log": "3\n"}.items():
        (tmp_path / "context" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "context" / name).write_text(text)
    return tmp_path / "context"


def recipe(text: str, context: Path, **more: object) -> Recipe:
    return Recipe("the test", textwrap.dedent(text), "Dockerfile", context, **more)  # type: ignore[arg-type]


async def build(text: str, context: Path, config: SandboxConfig, **more: object) -> tuple[Built, list[str]]:
    """The environment, and the steps that were made for it."""
    steps: list[str] = []
    built = await Builder(config).build(recipe(text, context, **more), steps.append)
    return built, [step.partition(": ")[2] for step in steps]


@asynccontextmanager
async def inside(built: Built, config: SandboxConfig) -> AsyncIterator[NamespaceSandbox]:
    spec = SandboxSpec("test", image=built.image)
    async with NamespaceSandbox(spec, SandboxLimits(), config.store) as sandbox:
        yield sandbox


def begun(config: SandboxConfig) -> list[str]:
    """What is there of layers in the making."""
    folder = Builder(config)._runtime.store / "staging"
    return os.listdir(folder) if folder.is_dir() else []


async def shown(built: Built, config: SandboxConfig, command: str, user: str = "root") -> str:
    """What a command prints in the environment."""
    async with inside(built, config) as sandbox:
        result = await sandbox.run(["sh", "-c", command], 20, user=user)
        return (result.stdout + result.stderr).decode().strip()


async def test_instructions_do_what_docker_does(context: Path, config: SandboxConfig) -> None:
    built, _ = await build(
        r"""
        ARG RELEASE=22.04
        FROM ubuntu:${RELEASE}
        ARG NAME=word
        ENV KEPT="a $NAME" \
            PATH=/extra:$PATH
        WORKDIR /made
        WORKDIR below
        RUN echo "$NAME $KEPT" > shell && pwd > where
        RUN ["sh", "-c", "echo exec > exec"]
        SHELL ["/bin/bash", "-o", "pipefail", "-c"]
        RUN { false | true; } || echo ${BASH_VERSION:+bash} > bash
        RUN <<END
        echo several > heredoc
        echo lines >> heredoc
        END
        RUN <<END
        #!/usr/bin/env python3
        print("python", file=open("script", "w"))
        END
        COPY one.txt copied
        COPY <<NAMED named
        of $NAME
        NAMED
        USER nobody
        CMD ["sleep", "1"]
        ENTRYPOINT : "$KEPT"
        EXPOSE 80
        LABEL a=b
        VOLUME /data
        STOPSIGNAL SIGTERM
        HEALTHCHECK NONE
        """,
        context,
        config,
    )
    image = built.image.config
    assert (image.user, image.workdir, image.cmd) == ("nobody", "/made/below", ())
    assert image.entrypoint == ("/bin/bash", "-o", "pipefail", "-c", ': "$KEPT"')
    assert image.env["KEPT"] == "a word"
    assert image.env["PATH"].startswith("/extra:/usr/local/sbin:")
    assert "NAME" not in image.env
    assert built.base_image == "ubuntu:22.04"
    assert built.note.startswith("ubuntu:22.04 is served by this host's own system (")
    files = await shown(built, config, "tail -n +1 $(ls); ls /dev/shm")
    assert " ".join(files.split()) == (
        "==> bash <== bash ==> copied <== one ==> exec <== exec ==> heredoc <== several lines "
        "==> named <== of word ==> script <== python ==> shell <== word a word ==> where <== /made/below"
    )


async def test_copy_and_add(context: Path, config: SandboxConfig) -> None:
    with tarfile.open(context / "files.tgz", "w:gz") as tar:
        for name in ("one.txt", "sub"):
            tar.add(context / name, name)
    (context / ".dockerignore").write_text("**/*.log\n")
    built, _ = await build(
        """
        FROM debian:12
        RUN mkdir -m 700 /there && mkdir /there/old && ln -s /there /link && echo mine > /there/old/kept
        COPY one.txt /there
        COPY one.txt /link/linked
        COPY sub /there/old
        COPY --chmod=711 *.txt new/
        ADD files.tgz /unpacked
        COPY files.tgz /packed/
        ADD --unpack=false files.tgz /as/it/is
        COPY . /all
        """,
        context,
        config,
    )
    listing = await shown(
        built,
        config,
        "cd /; find there new unpacked packed as all -printf '%p %m %U\\n' | sort; readlink /link",
    )
    assert listing.splitlines() == [
        "all 755 0",
        "all/.dockerignore 644 0",
        "all/files.tgz 644 0",
        "all/one.txt 644 0",
        "all/sub 755 0",
        "all/sub/two.txt 644 0",
        "as 755 0",
        "as/it 755 0",
        "as/it/is 644 0",
        "new 755 0",
        "new/one.txt 711 0",
        "packed 755 0",
        "packed/files.tgz 644 0",
        "there 700 0",
        "there/linked 644 0",
        "there/old 755 0",
        "there/old/kept 644 0",
        "there/old/two.txt 644 0",
        "there/one.txt 644 0",
        "unpacked 755 0",
        "unpacked/one.txt 644 0",
        "unpacked/sub 755 0",
        "unpacked/sub/three.log 644 0",
        "unpacked/sub/two.txt 644 0",
        "/there",
    ]


@root
async def test_owners_are_names_or_numbers_of_the_image(context: Path, config: SandboxConfig) -> None:
    built, _ = await build(
        """
        FROM debian:12
        RUN groupadd -g 4000 crew && useradd -u 4001 -g crew -m worker
        COPY --chown=worker:crew sub /srv/named/
        COPY --chown=1234 one.txt /srv/number
        ADD --chown=7:8 one.txt /srv/both
        USER worker
        WORKDIR /srv/named/of/worker
        COPY one.txt .
        RUN echo > mine && id -un > ~/me
        """,
        context,
        config,
    )
    find = "cd /srv; find . -mindepth 1 -printf '%p %U:%G\\n' | sort; cat ~worker/me"
    assert (await shown(built, config, find)).splitlines() == [
        "./both 7:8",
        "./named 4001:4000",
        "./named/of 4001:4000",
        "./named/of/worker 4001:4000",
        "./named/of/worker/mine 4001:4000",
        "./named/of/worker/one.txt 0:0",
        "./named/three.log 4001:4000",
        "./named/two.txt 4001:4000",
        "./number 1234:1234",
        "worker",
    ]


async def test_stages(context: Path, config: SandboxConfig) -> None:
    built, _ = await build(
        """
        FROM debian:12 AS first
        ENV IN=first
        WORKDIR /out
        RUN mkdir -p deep empty && echo a > a && echo b > deep/b && ln -s a link && chmod 4711 a
        ONBUILD RUN echo triggered > /triggered

        FROM first AS second
        RUN echo $IN > /out/env

        FROM debian:12
        RUN mkdir -m 1777 /open && mkdir -m 700 /closed
        COPY --from=first /out /copied
        COPY --from=second /out/env /triggered /open/
        COPY --from=0 /out/deep/* /closed
        COPY --from=first --chmod=600 /out/a /open/private
        COPY --from=first /out/link /open/followed
        """,
        context,
        config,
    )
    found = await shown(
        built, config, "cd /; find copied open closed -printf '%p %m %l\\n' | sort; cat open/env"
    )
    assert found.splitlines() == [
        "closed 700 ",
        "closed/b 644 ",
        "copied 755 ",
        "copied/a 4711 ",
        "copied/deep 755 ",
        "copied/deep/b 644 ",
        "copied/empty 755 ",
        "copied/link 777 a",
        "open 1777 ",
        "open/env 644 ",
        "open/followed 4711 ",
        "open/private 600 ",
        "open/triggered 644 ",
        "first",
    ]
    assert "IN" not in built.image.config.env


@root
async def test_a_stage_gives_files_to_the_users_of_the_next(context: Path, config: SandboxConfig) -> None:
    built, _ = await build(
        """
        FROM debian:12 AS first
        RUN echo a > /a && chown 5:6 /a
        FROM debian:12
        RUN useradd -u 4001 worker && mkdir /bin2 && echo > /bin2/old
        COPY --from=first /a /kept
        COPY --from=first --chown=worker /a /bin2/
        """,
        context,
        config,
    )
    assert (
        await shown(built, config, "stat -c '%u:%g' /kept /bin2 /bin2/old /bin2/a")
        == "5:6\n0:0\n0:0\n4001:4001"
    )


async def test_what_a_layer_keeps_of_files(context: Path, config: SandboxConfig) -> None:
    built, _ = await build(
        r"""
        FROM debian:12
        WORKDIR /kept
        RUN touch -d 2001-02-03T04:05:06Z old && truncate -s 50M sparse && mkfifo pipe && chmod 640 old
        RUN cp /bin/true setuid && chmod 4755 setuid && echo > one && ln one two && ln -s nowhere loose
        RUN python3 -c "import os; os.setxattr('old', 'user.note', b'kept')"
        RUN rm -r /etc/skel && mkdir /etc/skel
        RUN touch later && printf 'a\tb "c" $d\n' > 'odd name'
        """,
        context,
        config,
    )
    listing = await shown(
        built,
        config,
        "cd /kept; TZ=UTC find old setuid pipe loose one two later -printf '%p %y %m %n %l\\n' | sort; "
        "stat -c '%y %s' old; stat -c '%s' sparse; [ $(stat -c %b sparse) -lt 100 ] && echo sparse; "
        "python3 -c \"import os; print(os.getxattr('old', 'user.note'))\"; ls -A /etc/skel; cat 'odd name'",
    )
    assert listing.splitlines() == [
        "later f 644 1 ",
        "loose l 777 1 nowhere",
        "old f 640 1 ",
        "one f 644 2 ",
        "pipe p 644 1 ",
        "setuid f 4755 1 ",
        "two f 644 2 ",
        "2001-02-03 04:05:06.000000000 +0000 0",
        f"{50 * 1024 * 1024}",
        "sparse",
        "b'kept'",
        'a\tb "c" $d',
    ]


async def test_a_layer_is_made_once(context: Path, config: SandboxConfig) -> None:
    text = "FROM debian:12\nRUN date +%N > /a\nCOPY one.txt /b\nRUN cp /b /c\n"
    first, made = await build(text, context, config)
    assert made[-3:] == ["RUN date +%N > /a", "COPY one.txt /b", "RUN cp /b /c"]
    again, made = await build(text, context, config)
    assert (again, made) == (first, [])
    other, made = await build(text + "RUN true\n", context, config)
    assert made == ["RUN true"]
    assert other.image.layers[1:] == first.image.layers


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("RUN echo 1", "RUN echo 2"),
        ("COPY sub /x", "COPY sub /y"),
        ("COPY one.txt /x", "COPY --chmod=600 one.txt /x"),
        ("ENV A=1", "ENV A=2"),
        ("ARG A=1", "ARG A=2"),
        ("USER root", "USER nobody"),
        ("WORKDIR /x", "WORKDIR /y"),
        ('SHELL ["/bin/sh", "-c"]', 'SHELL ["/bin/bash", "-c"]'),
    ],
)
async def test_what_an_instruction_reads_is_part_of_its_layer(
    before: str, after: str, context: Path, config: SandboxConfig
) -> None:
    text = f"FROM debian:12\nRUN echo {before!r} {after!r} > /tmp/mark\n{{}}\nRUN true\n"
    await build(text.format(before), context, config)
    _, made = await build(text.format(after), context, config)
    assert made[-1:] == ["RUN true"]
    _, made = await build(text.format(before), context, config)
    assert made == []


async def test_a_changed_file_makes_the_layers_from_there_on_anew(
    context: Path, config: SandboxConfig
) -> None:
    text = "FROM debian:12\nRUN echo changes > /a\nCOPY sub/ /b/\nRUN cat /b/two.txt > /c\n"
    await build(text, context, config)
    (context / "one.txt").write_text("not copied\n")
    assert (await build(text, context, config))[1] == []
    (context / "sub/two.txt").write_text("changed\n")
    built, made = await build(text, context, config)
    assert made == ["COPY sub/ /b/", "RUN cat /b/two.txt > /c"]
    assert await shown(built, config, "cat /c") == "changed"


async def test_builds_at_once_share_what_is_equal(context: Path, config: SandboxConfig) -> None:
    text = "FROM debian:12\nRUN date +%N > /same; sleep 0.2\nRUN echo {} > /own\n"
    steps: list[str] = []
    builder = Builder(config)
    mine = [builder.build(recipe(text.format(i), context), steps.append) for i in range(3)]
    others = [Builder(config).build(recipe(text.format(i), context)) for i in range(3)]
    built = await asyncio.gather(*mine, *others)
    assert sum("/same" in step for step in steps) <= 1
    assert len({each.image.layers[1] for each in built}) == 1
    assert len({each.image.layers[0] for each in built}) == 3
    assert [await shown(each, config, "cat /own") for each in built] == ["0", "1", "2"] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "RUN echo the reason >&2; exit 3",
            r"RUN echo the reason >&2; exit 3 failed with exit code 3: the reason \(",
        ),
        (
            "RUN missing-program",
            r"RUN missing-program failed with exit code 127: .*missing-program: not found \(",
        ),
        ("RUN exit 1", r"failed with exit code 1: it printed nothing \("),
        (
            "RUN echo 'E: Unable to locate package x' && false",
            r"package x \(.*; debian:12 is served by this host's own",
        ),
        (
            "RUN echo curl: Could not resolve host: x; echo Error; false",
            r"curl: Could not resolve host: x \(",
        ),
        ("COPY none /", r"none is not in .*context$"),
        (
            "ADD https://example.org/x /",
            r"https://example.org/x would be downloaded: put the file into the task's",
        ),
        ("COPY one.txt sub /x", r"/x must end in '/': it takes more than one source"),
        ("COPY --chmod=u+x one.txt /", r"--chmod=u\+x must be an octal number"),
        ("COPY --parents one.txt /", r"--exclude and --parents are not supported: use \.dockerignore"),
        (
            "COPY --from=nowhere /a /b",
            r"COPY --from=nowhere names no earlier stage, and no root file system serves",
        ),
        (
            "RUN --mount=type=bind,target=/x true",
            r"RUN --mount of type bind is not supported: copy what it needs",
        ),
        (
            "RUN --security=insecure true",
            r"RUN --security=insecure asks for privileges that no sandbox gives",
        ),
        (
            "RUN echo > /file\nWORKDIR /file/x",
            r"the folder /file/x could not be made: mkdir: .*Not a directory",
        ),
        (
            "FROM alpine:3.20",
            r"no root file system serves the image alpine:3\.20: name one in the config under",
        ),
        ("FROM --platform=linux/s390x debian:12", r"the platform linux/s390x is not this machine's"),
    ],
)
async def test_what_cannot_be_built_is_refused_with_its_line(
    text: str, sentence: str, context: Path, config: SandboxConfig
) -> None:
    with pytest.raises(BuildRefused, match=rf"(?s)^Dockerfile line {text.count(chr(10)) + 3}: .*{sentence}"):
        await build(f"FROM debian:12\n\n{text}\n", context, config)
    assert begun(config) == []


@root
@pytest.mark.parametrize("text", ["COPY --chown=stranger one.txt /", "USER stranger\nRUN true"])
async def test_users_that_the_image_has_not_are_refused(
    text: str, context: Path, config: SandboxConfig
) -> None:
    with pytest.raises(BuildRefused, match=r"line \d: .*there is no user 'stranger' in the sandbox's"):
        await build(f"FROM debian:12\n{text}\n", context, config)


async def test_what_docker_would_reject_is_refused_before_anything_runs(
    context: Path, config: SandboxConfig
) -> None:
    with pytest.raises(DockerfileError, match="line 3: unknown instruction"):
        await build("FROM debian:12\nRUN touch /a\nRUNN true\n", context, config)


async def test_a_failed_step_leaves_those_before_it(context: Path, config: SandboxConfig) -> None:
    text = "FROM debian:12\nRUN echo before a failure > /a\nRUN test -e /{}\n"
    with pytest.raises(BuildRefused):
        await build(text.format("b"), context, config)
    assert (await build(text.format("a"), context, config))[1] == ["RUN test -e /a"]


async def test_a_build_has_a_time_limit(context: Path, config: SandboxConfig) -> None:
    with pytest.raises(
        BuildRefused, match=r"line 2: RUN sleep 60 was not done within the task's build_timeout_sec "
    ):
        await build("FROM debian:12\nRUN sleep 60\n", context, config, timeout_s=1.0)


async def test_no_command_of_a_build_reaches_the_host(
    context: Path, config: SandboxConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "sesame")
    built, _ = await build(
        f"""
        FROM debian:12
        RUN env > /env; ls -d {tmp_path} {Path(__file__).parents[2]} > /seen 2>/dev/null; true
        RUN cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > /processes
        RUN mknod /disk b 8 0 2>/dev/null && head -c1 /disk > /read; true
        RUN mount -t tmpfs x /mnt 2>/dev/null && echo > /mounted; true
        """,
        context,
        config,
    )
    seen = await shown(built, config, "cat /env /seen; ls /read /mounted 2>/dev/null; cat /processes")
    assert "sesame" not in seen
    assert str(tmp_path) not in seen
    assert "/read" not in seen
    assert "/mounted" not in seen
    assert "pytest" not in seen


async def test_variables_of_the_host_that_are_named_are_seen_and_not_kept(
    context: Path, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR", "here")
    config = config.model_copy(update={"build": BuildConfig(network=False, env=["MIRROR"])})
    built, _ = await build("FROM debian:12\nRUN echo $MIRROR > /mirror\n", context, config)
    assert await shown(built, config, "cat /mirror; echo [$MIRROR]") == "here\n[]"


@pytest.mark.parametrize(
    ("task", "configured", "expected"),
    [
        (True, True, ["connected"]),
        (False, True, []),
        (True, False, []),
    ],
)
async def test_a_build_has_a_network_only_if_the_task_and_the_config_allow_it(
    task: bool,
    configured: bool,
    expected: list[str],
    context: Path,
    layers: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected: list[str] = []

    class Connection:
        async def close(self) -> None: ...

    async def connect(pid: int, error: object) -> Connection:
        connected.append("connected")
        return Connection()

    monkeypatch.setattr(network, "connect", connect)
    monkeypatch.setattr(network, "program", lambda: "/usr/bin/slirp4netns")
    config = SandboxConfig(store=layers, build=BuildConfig(network=configured))
    text = f"FROM debian:12\nCOPY one.txt /\nRUN : {task} {configured}\nRUN --network=none true\nRUN true\n"
    await build(text, context, config, allow_internet=task)
    assert connected == expected * 2


async def test_the_reason_says_that_there_was_no_network(context: Path, config: SandboxConfig) -> None:
    with pytest.raises(BuildRefused, match=r"\(without a network: the task allows none[);]"):
        await build("FROM debian:12\nRUN false\n", context, config, allow_internet=False)
    with pytest.raises(
        BuildRefused, match=r"\(without a network: the config allows none \(sandbox.build.network\)[);]"
    ):
        await build("FROM debian:12\nRUN false\n", context, config)
    with pytest.raises(BuildRefused, match=r"\(without a network: RUN --network=none[);]"):
        await build("FROM debian:12\nRUN --network=none false\n", context, config)


async def test_a_cancelled_build_leaves_nothing(context: Path, config: SandboxConfig) -> None:
    began = asyncio.Event()

    def progress(step: str) -> None:
        if "sleep" in step:
            began.set()

    build = Builder(config).build(recipe("FROM debian:12\nRUN sleep 60\n", context), progress)
    running = asyncio.create_task(build)
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert begun(config) == []


KILLED = """
import asyncio, sys
from pathlib import Path
from tasks.config import BuildConfig, SandboxConfig
from tasks.environments import Builder, Recipe
from tasks.sandbox.namespace import NamespaceSandbox

async def never_ends(*arguments, **options):
    print("begun", flush=True)
    await asyncio.Event().wait()

NamespaceSandbox.run = never_ends
recipe = Recipe("killed", "FROM debian:12\\nRUN : killed\\n", "Dockerfile", Path(sys.argv[2]))
config = SandboxConfig(store=Path(sys.argv[1]), build=BuildConfig(network=False))
asyncio.run(Builder(config).build(recipe))
"""


async def test_what_a_killed_build_has_left_is_removed_by_the_next(
    context: Path, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build("FROM debian:12\n", context, config)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(config.store), str(context)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    process.kill()
    await process.wait()
    assert begun(config) != []
    monkeypatch.setattr(store, "_tidied", set())
    await build("FROM debian:12\nRUN : after the killed one\n", context, config)
    assert begun(config) == []


async def test_what_another_process_builds_at_the_moment_is_left_alone(
    context: Path, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build("FROM debian:12\n", context, config)
    layers = store.LayerStore(Builder(config)._runtime)
    async with layers.making("held") as staging:
        folder = layers.runtime.store / staging
        folder.mkdir(parents=True)
        monkeypatch.setattr(store, "_tidied", set())
        await build("FROM debian:12\nRUN : beside a held one\n", context, config)
        assert folder.is_dir()
        with free_lock(layers.runtime.store / "building") as free:
            assert not free
    with free_lock(layers.runtime.store / "building") as free:
        assert free


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ubuntu", "ubuntu:latest"),
        ("ubuntu:22.04", "ubuntu:22.04"),
        ("docker.io/library/ubuntu:22.04", "ubuntu:22.04"),
        ("library/debian", "debian:latest"),
        ("debian:12@sha256:0123", "debian:12"),
        ("public.ecr.aws/docker/library/debian:12", "debian:12"),
        ("localhost:5000/mine", "localhost:5000/mine:latest"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
    ],
)
def test_names_of_images(written: str, name: str) -> None:
    assert normal(written) == name


async def test_a_base_is_configured(context: Path, config: SandboxConfig) -> None:
    bases = {"mine/tool:*": BaseConfig(env={"TOOL": "yes"}, run=["echo made > /tool"]), **config.bases}
    config = config.model_copy(update={"bases": bases})
    built, _ = await build("FROM mine/tool\nRUN echo $TOOL >> /tool\n", context, config)
    assert await shown(built, config, "cat /tool; echo $TOOL") == "made\nyes\nyes"
    built, _ = await build("FROM debian:12\nCOPY --from=mine/tool /tool /opt/tool\n", context, config)
    assert await shown(built, config, "cat /opt/tool") == "made"


@root
async def test_the_base_is_nearer_to_an_image_than_the_host(context: Path, config: SandboxConfig) -> None:
    built, _ = await build("FROM ubuntu:22.04\nRUN su nobody -s /bin/sh -c id > /id\n", context, config)
    assert "(nobody)" in await shown(built, config, "cat /id")
    packages = await shown(built, config, "cat /var/lib/other-names/Packages; ls /etc/nsswitch.conf")
    assert "Package: netcat\n" in packages
    assert packages.endswith("/etc/nsswitch.conf")


async def test_the_recipe_of_a_task(tmp_path: Path) -> None:
    task = Task(
        "x", "x", "Do it.", tmp_path, docker_image="ubuntu:24.04", allow_internet=False, build_timeout_s=5
    )
    found = Recipe.of(task)
    assert (found.text, found.file) == ("FROM ubuntu:24.04\n", str(tmp_path / "task.toml"))
    assert (found.allow_internet, found.timeout_s) == (False, 5)
    with pytest.raises(
        BuildRefused, match="is missing: an environment needs it, or docker_image in task\\.toml"
    ):
        Recipe.of(Task("x", "x", "Do it.", tmp_path))
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_bytes(b"FROM \xff\n")
    with pytest.raises(BuildRefused, match="Dockerfile cannot be read"):
        Recipe.of(task)


async def test_a_store_that_cannot_be_written_is_a_sentence(context: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="cannot hold the sandboxes' layers"):
        await build("FROM debian:12\n", context, SandboxConfig(store=tmp_path / "file"))
