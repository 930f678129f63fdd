"""What a test.sh would download, and the programs that stand in for that, run here as in a sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tasks.verifier import runner
from tasks.verifier.needs import needs

STAND_INS = Path(runner.__file__).with_name("stand_ins.sh")
UV_0_9 = """\
#!/bin/bash

apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
# Run pytest tests
cd /home/user
uvx \\
  --python 3.12 \\
  --with pytest==8.4.1 \\
  pytest /tests/test_final_state.py -v
# Check exit code and write reward
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
UV = "https://astral.sh/uv/install.sh"
ALWAYS = ("pytest==8.4.1", "pytest-json-ctrf==0.3.5")


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        (UV_0_9, ("pytest==8.4.1",)),
        ("uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest --ctrf /logs/x /tests/t.py", ALWAYS),
        ("uvx --from pytest==8.4.1 pytest -q", ("pytest==8.4.1",)),
        ("uvx pytest@8.4.1 -q", ("pytest==8.4.1",)),
        ("uvx pytest", ("pytest",)),
        ("uvx --with=a,b --with 'c>=1,<2' pytest", ("a", "b", "c>=1,<2", "pytest")),
        ("uv run --with pytest==8.4.1 --with requests pytest", ("pytest==8.4.1", "requests")),
        ("uv run -p 3.12 --with numpy==2.1.0 -m pytest x.py", ("numpy==2.1.0", "pytest==8.4.1")),
        ("uv run pytest", ALWAYS),
        ("uv tool run --from pytest pytest", ("pytest",)),
        ("uv tool install pytest==8.0.0\npytest", ("pytest==8.0.0",)),
        ("uv init\nuv add pytest==8.4.1 rich==13.0\nuv run pytest", ("pytest==8.4.1", "rich==13.0")),
        (
            "uv venv .t\nsource .t/bin/activate\nuv pip install pytest==8.4.1 pyyaml\nuv run pytest x",
            ("pytest==8.4.1", "pyyaml"),
        ),
        ("uv pip install --system 'pytest[dev]>=8'", ("pytest[dev]>=8",)),
        ("pip3 install pytest requests", ("pytest", "requests")),
        ("pip install -q --no-cache-dir pytest==7.4 > /dev/null 2>&1 || true", ("pytest==7.4",)),
        ("pip install pytest > log", ("pytest",)),
        ("pip install --break-system-packages -i https://x/simple pytest", ("pytest",)),
        ("python3 -m pip install -q pytest", ("pip", "pytest")),
        ("/usr/bin/python3.11 -m pip install flask", ("pip", "flask", "pytest==8.4.1")),
        ("if ! command -v pytest; then pip install pytest; fi", ("pytest",)),
        ("cd /x && pip install numpy && python -m pytest", ("numpy", "pytest==8.4.1")),
        ("PIP_X=1 pip install pytest", ("pytest",)),
        ("sudo -E pip install pytest", ("pytest",)),
        ("timeout 60 uvx --with pytest==8.4.1 pytest", ("pytest==8.4.1",)),
        ("(pip install pytest)", ("pytest",)),
        ("pip install --upgrade pip setuptools wheel\npip install pytest", ("pytest",)),
        ("pip install -e . ./x.whl git+https://github.com/a/b $MORE pytest", ("pytest",)),
        ("pip install pytest; pip install pytest", ("pytest",)),
        ("pip install -r /tests/requirements.txt", ("pytest==8.1.0", "rich>=13")),
        ("cd /tests; uvx --with-requirements requirements.txt pytest", ("pytest==8.1.0", "rich>=13")),
        ("uv run /tests/script.py", ("requests<3", "pytest[x]==8.2", )),
        ("pipx install pytest\npipx run black .", ("pytest", "black")),
        ("pip install uv && uvx --with pytest==8.4.1 pytest", ("pytest==8.4.1",)),
        ("pip install pytest-timeout", ("pytest-timeout", "pytest==8.4.1")),
        ("apt-get update && apt-get install -y python3-pytest && pytest", ALWAYS),
        ("apt-get install -y jq", ()),
        ('echo "unfinished\npip install pytest\n"', ("pytest",)),
    ],
)  # fmt: skip
def test_what_is_fetched(text: str, packages: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "# tests\npytest == 8.1.0 ; python_version > '3'\nrich>=13 # nice\n-e .\n"
    )
    (tmp_path / "script.py").write_text(
        '# /// script\n# requires-python = ">=3.11"\n'
        '# dependencies = [\n#   "requests<3",\n#   "pytest[x]==8.2",\n# ]\n# ///\nimport pytest\n'
    )
    found = needs(text, tmp_path)
    assert found is not None
    assert found.packages == packages


@pytest.mark.parametrize(
    "text",
    [
        "pytest /tests/test.py",
        "python3 -m pytest /tests/test.py",
        "python3 /tests/check.py && echo 1 > /logs/verifier/reward.txt",
        "# pip install pytest\n",
        "command -v uv",
        "pip list; uv --version; apt-get update",
        "curl -s http://localhost:8080/",
        "",
    ],
)
def test_what_fetches_nothing(text: str) -> None:
    assert needs(text) is None


def test_a_file_outside_the_tests_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("sesame\n")
    (tmp_path / "tests").mkdir()
    found = needs("pip install -r ../secret.txt -r /etc/hostname pytest", tmp_path / "tests")
    assert found is not None
    assert found.packages == ("pytest",)


def test_packages_are_installed_for_the_image() -> None:
    text = runner.dockerfile("ubuntu:22.04", ("pytest==8.4.1", "a>1"))
    assert text.startswith("FROM ubuntu:22.04\n")
    assert "--target /opt/verifier/site pytest==8.4.1 'a>1' " in text


class Here:
    """A home, stand-ins, two packages, and programs of the image that say that they were called."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.verifier, self.bin, self.tests, self.home, self.work = (
            place / name for name in ("verifier", "bin", "tests", "home", "work")
        )
        for folder in (self.verifier, self.bin, self.tests, self.home, self.work):
            folder.mkdir()
        for name in runner.NAMES:
            (self.verifier / name).write_bytes(STAND_INS.read_bytes())
            (self.verifier / name).chmod(0o755)
        (self.verifier / "failures").write_text("")
        site = self.verifier / "site"
        for name in ("pytest-8.4.1", "Foo_Bar-1.2"):
            (site / f"{name}.dist-info").mkdir(parents=True)
        (site / "pytest").mkdir()
        (site / "pytest/__main__.py").write_text(
            "import sys; print('pytest', *sys.argv[1:]); sys.exit(len(sys.argv) > 9)"
        )
        (site / "bin").mkdir()
        self.program(site / "bin/tool", "#!/usr/bin/env python3\nimport sys; print('tool', *sys.argv[1:])")

    def program(self, file: Path, text: str) -> None:
        file.write_text(text)
        file.chmod(0o755)

    def real(self, *names: str, status: int = 0) -> None:
        """Programs of the image."""
        for name in names:
            self.program(self.bin / name, f'#!/bin/sh\necho "real {name} $*"\nexit {status}\n')

    def run(self, script: str, **env: str) -> tuple[int, str]:
        """Status and output of a test.sh."""
        file = self.tests / "test.sh"
        file.write_text(script)
        path = f"{self.verifier}:{self.bin}:/usr/bin:/bin"
        result = subprocess.run(
            ["bash", str(file)],
            env={
                "PATH": path,
                "HOME": str(self.home),
                "PYTHONPATH": str(self.verifier / "site"),
                "UV": UV,
                **env,
            },
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return result.returncode, result.stdout.strip()

    @property
    def failures(self) -> str:
        return (self.verifier / "failures").read_text().strip()


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_the_usual_test_sh_runs_pytest(here: Here) -> None:
    script = UV_0_9.replace("/home/user", str(here.work)).replace("/logs/verifier", str(here.work))
    assert here.run(script) == (0, "pytest /tests/test_final_state.py -v")
    assert (here.work / "reward.txt").read_text() == "1\n"
    assert here.failures == ""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("uvx --with pytest==8.4.1 pytest -q a", "pytest -q a"),
        ("uvx -p 3.13 -w pytest==8.4.1 pytest x", "pytest x"),
        ("uvx pytest@8.4.1 x", "pytest x"),
        ("uv run --with pytest pytest x", "pytest x"),
        ("uv run -m pytest x", "pytest x"),
        ("uv run python -m pytest x", "pytest x"),
        ("uv -q run --project /x -- pytest x", "pytest x"),
        ("uv tool run pytest x", "pytest x"),
        ("uv tool install pytest && pytest x", "pytest x"),
        ("uvx --from foo-bar tool x", "tool x"),
        ("uv run tool x", "tool x"),
        ("uv init -q; uv add pytest==8.4.1 foo-bar; uv sync; uv run pytest x", "pytest x"),
        ("uv venv .t && source .t/bin/activate && uv pip install pytest && uv run pytest x", "pytest x"),
        ("uv venv -p 3.12 && . .venv/bin/activate && pip install pytest && python -m pytest x", "pytest x"),
        ("pip install -q pytest==8.4.1 foo.bar && pytest x", "pytest x"),
        ("pip3 install 'Foo-Bar>=1' && python3 -m pytest x", "pytest x"),
        ("pip install uv && uvx pytest x", "pytest x"),
        ("printf 'pytest==8.4.1\\n# c\\n\\nfoo-bar # d\\n' > r; pip install -r r && pytest x", "pytest x"),
        ("pipx install pytest && pipx run pytest x", "pytest x"),
        ("echo 'print(1)' > s.py; uv run s.py", "1"),
        ("uv run sh -c 'echo $1' x y", "y"),
        ("uv --version; uv python install 3.12; echo fine", "fine"),
        ("apt-get -y update && apt-get install -y --no-install-recommends curl bash && echo fine", "fine"),
        ("apt update; apt install -y python3-pip ca-certificates; echo $?", "0"),
        ("curl -LsSf $UV | sh; . $HOME/.cargo/env; uvx pytest x", "pytest x"),
        ("wget -qO- $UV | sh; $HOME/.local/bin/uvx pytest x", "pytest x"),
        ("curl -LsSf $UV -o i.sh; sh i.sh; ~/.local/bin/uv run pytest x", "pytest x"),
        ("curl -fsSLo i.sh $UV && bash i.sh && uvx pytest x", "pytest x"),
        ("curl -OL $UV && sh install.sh && uvx pytest x", "pytest x"),
        ("wget $UV && sh install.sh && uvx pytest x", "pytest x"),
        ("wget -O i.sh -q $UV && sh i.sh && uvx pytest x", "pytest x"),
        ("curl -LsSf $UV | env UV_INSTALL_DIR=$PWD/b sh; b/uvx pytest x", "pytest x"),
        ("curl -LsSf https://github.com/astral-sh/uv/releases/latest/download/uv-installer.sh | sh", ""),
        ("env -i PATH=$PATH HOME=$HOME uvx pytest x", "pytest x"),
        ("set -euo pipefail; curl -LsSf $UV | sh; source ~/.local/bin/env; uvx pytest x", "pytest x"),
    ],
)  # fmt: skip
def test_stand_ins_do_what_was_asked_for(here: Here, script: str, printed: str) -> None:
    assert here.run(script) == (0, printed)
    assert here.failures == ""


def test_the_status_of_the_tests_is_kept(here: Here) -> None:
    assert here.run("uvx pytest 1 2 3 4 5 6 7 8 9")[0] == 1
    assert here.run("uv run false; echo $?") == (0, "1")
    assert here.failures == ""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("curl -s http://localhost:80/x", "real curl -s http://localhost:80/x"),
        ("wget -q http://localhost/x", "real wget -q http://localhost/x"),
        ("pip list", "real pip list"),
        ("pip install pytest==7.0.0", "real pip3 install pytest==7.0.0"),
        ("pip3 install other", "real pip3 install other"),
        ("pip install -e .", "real pip3 install -e ."),
        ("apt-get install -y missing-package", "real apt-get install -y missing-package"),
        ("apt-get remove -y curl", "real apt-get remove -y curl"),
    ],
)
def test_what_they_cannot_stand_in_for_goes_to_the_image_s_own(here: Here, script: str, printed: str) -> None:
    here.real("curl", "wget", "pip", "pip3", "apt-get")
    assert here.run(script) == (0, printed)
    assert here.failures == ""


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("pip install other", "pip could not install other"),
        ("uv pip install other pytest", "uv could not install other pytest"),
        ("uv add other", "uv could not install other"),
        ("apt-get install -y missing-package curl", "apt-get could not install missing-package"),
        ("uv publish", "uv: no stand-in for: uv publish"),
        ("uvx ruff check", "ruff: command not found"),
    ],
)
def test_what_could_not_be_done_is_noted(here: Here, script: str, failure: str) -> None:
    here.real("pip", "pip3", "apt-get", status=1)
    status, _ = here.run(script)
    assert status != 0
    assert here.failures == failure


def test_what_the_tests_themselves_run_may_fail(here: Here) -> None:
    here.real("pip", "pip3", status=1)
    (here.verifier / "site/pytest/__main__.py").write_text(
        "import os; os.system('pip install other; uv publish')"
    )
    assert here.run("uvx pytest x")[0] == 0
    assert here.failures == ""


def test_an_image_without_python_cannot_run_them(here: Here) -> None:
    bare = here.place / "bare"
    bare.mkdir()
    for name in ("bash", "dirname", "readlink", "tr", "basename", "env"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    status, printed = here.run("uvx pytest x", PATH=f"{here.verifier}:{bare}")
    assert (status, printed) == (127, "uvx: python3: command not found")
    assert here.failures == "python3: command not found"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_cannot_be_written_fails_as_uv_s_installer_does(here: Here) -> None:
    here.home.chmod(0o500)
    assert here.run("set -o pipefail; curl -LsSf $UV | sh")[0] != 0


def test_a_missing_home_fails_as_uv_s_installer_does(here: Here) -> None:
    script = "set -o pipefail; curl -LsSf $UV | sh"
    assert here.run(script, HOME="/proc/none")[0] != 0
    assert here.run(f"{script}; uvx pytest x", HOME="/proc/none")[1].endswith("pytest x")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "/tests/test.sh: line 9: uvx: command not found\n0",
            "/tests/test.sh: line 9: uvx: command not found",
        ),
        ("/tests/test.sh: 9: uvx: not found", "/tests/test.sh: 9: uvx: not found"),
        ("/tests/run-pytest.sh: line 2: pytest: command not found", None),
        ("x\n/tests/test.sh: line 9: /root/.local/bin/uv: No such file or directory", None),
        ("/usr/bin/python3: No module named pytest", None),
        ("/usr/bin/python3.11: No module named 'pytest'", None),
        ("__main__.py: error: unrecognized arguments: --ctrf /logs/verifier/ctrf.json", None),
        ("ERROR: file or directory not found: /tests/test_outputs.py", None),
        (
            'E     File "/tests/test_x.py", line 3\nE       print(f"{a["b"]}")\nE                 ^\n'
            "E   SyntaxError: f-string: unmatched '['",
            'File "/tests/test_x.py", line 3',
        ),
    ],
)
def test_a_runner_that_could_not_run_says_so(output: str, line: str | None) -> None:
    assert runner.broken(f"something\n{output}\nmore\n") == (line or output.splitlines()[-1])


@pytest.mark.parametrize(
    "output",
    [
        "E   AssertionError: /app/run.sh: line 3: python3: command not found",
        "/app/run.sh: line 3: python3: command not found",
        "/tests/test.sh: line 4: /app/solution: No such file or directory",
        "/tests/test.sh: line 4: jq: command not found",
        "E   FileNotFoundError: [Errno 2] No such file or directory: 'uv'",
        "ModuleNotFoundError: No module named 'yaml'",
        "E   ModuleNotFoundError: No module named 'app'",
        "ERROR: file or directory not found: /app/test.py",
        "E     File \"/app/x.py\", line 3\nE       x(\nE   SyntaxError: '(' was never closed",
        "FAILED test_final_state.py::test_x - assert 0",
        "pip: command not found in the docs",
        "",
    ],
)
def test_an_honest_failure_is_no_broken_runner(output: str) -> None:
    assert runner.broken(output) is None
