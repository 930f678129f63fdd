"""Dockerfiles are read by BuildKit's rules: lines, heredocs, flags, forms, variables, and what is refused."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dockerfile import (
    Add,
    Arg,
    Cmd,
    Copy,
    DockerfileError,
    Entrypoint,
    Env,
    Expose,
    From,
    Healthcheck,
    InlineFile,
    Instruction,
    Label,
    Maintainer,
    Onbuild,
    Run,
    Scope,
    Shell,
    Stopsignal,
    User,
    View,
    Volume,
    Workdir,
    base_image,
    expand,
    expand_heredoc,
    global_args,
    global_variables,
    parse,
    platform_args,
    stages,
    trigger,
)
from tasks.task import TaskError


def only(text: str) -> Instruction:
    """The instruction after FROM; the text's first line is line 2."""
    _, instruction = parse("FROM base\n" + text)
    return instruction


def view(text: str) -> View:
    return only(text).view


def run(text: str) -> Run:
    found = view(text)
    assert isinstance(found, Run)
    return found


# Lines


def test_a_continuation_joins_lines_and_skips_comments_and_empty_lines() -> None:
    instruction = only("RUN a && \\\n  # why\n\n\tb \\  \n c\nCMD x\n".removesuffix("CMD x\n"))
    assert instruction.view == Run("a && \tb  c")
    assert (instruction.line, instruction.last_line) == (2, 6)


def test_an_escaped_escape_ends_the_line() -> None:
    assert [one.line for one in parse("FROM a\nRUN echo \\\\\nRUN b\n")] == [1, 2, 3]


def test_lines_are_exact_and_the_text_is_the_files_own() -> None:
    text = "\ufeff# c\r\n\r\nFROM a\r\nRUN x \\\r\n  y\r\n# d\r\nRUN <<A\r\nz\r\nA\r\n"
    found = parse(text)
    assert [(one.line, one.last_line) for one in found] == [(3, 3), (4, 5), (7, 9)]
    assert found[1].text == "RUN x \\\r\n  y\r\n"
    assert found[2].heredocs[0].body == "z\r\n"
    assert found[1].where == "Dockerfile line 4"


def test_the_escape_directive_changes_the_escape() -> None:
    found = parse(
        "# syntax=docker/dockerfile:1\n# Escape = `\nFROM a\nRUN dir c:\\ `\n  x\nENV A=`$b B=\\n\n"
    )
    assert found[1].view == Run("dir c:\\   x")
    resolved, _ = Scope({"b": "no"}).apply(found[2])
    assert resolved.view == Env((("A", "$b"), ("B", "\\n")))


def test_a_directive_after_anything_else_is_a_comment() -> None:
    assert parse("# a comment\n# escape=`\nFROM a\nRUN x \\\n y\n")[1].view == Run("x  y")


# Forms and flags


def test_a_json_array_is_the_exec_form_and_bad_json_the_shell_form() -> None:
    assert only('RUN ["a", "b c"]').form == "exec"
    assert view('RUN ["a", "b \\u00e9"]') == Run(("a", "b é"))
    assert view("RUN ['a', 'b']") == Run("['a', 'b']")
    assert view('CMD ["a"] b') == Cmd('["a"] b')
    assert view("CMD [NaN]") == Cmd("[NaN]")
    assert view("CMD " + "[" * 5000) == Cmd("[" * 5000)
    assert view("ENTRYPOINT []") == Entrypoint(())
    with pytest.raises(DockerfileError, match="strings only"):
        view('RUN ["a", 1]')


def test_every_keyword_has_its_view() -> None:
    assert parse("from --platform=linux/amd64 a:1 as Build\n")[0].view == From("a:1", "linux/amd64", "build")
    assert view("ADD --checksum=x --unpack=false a b /c/") == Add(
        ("a", "b"), "/c/", checksum="x", unpack=False
    )
    assert view('COPY --from=0 --chown=u:g --chmod=755 --link ["a b", "/c"]') == Copy(
        ("a b",), "/c", chown="u:g", chmod="755", from_stage="0", link=True
    )
    assert view("COPY --exclude=*.o --exclude=*.a . .") == Copy((".",), ".", exclude=("*.o", "*.a"))
    assert view('ENV A=1 B="x y" C=x\\ y') == Env((("A", "1"), ("B", '"x y"'), ("C", "x\\ y")))
    assert view("ENV A  b c=d ") == Env((("A", "b c=d"),))
    assert view('LABEL a.b="c d" e=') == Label((("a.b", '"c d"'), ("e", "")))
    assert view("ARG a b=2") == Arg((("a", None), ("b", "2")))
    assert view("WORKDIR /a b") == Workdir("/a b")
    assert view("USER 1000:1000") == User("1000:1000")
    assert view('SHELL ["/bin/bash", "-c"]') == Shell(("/bin/bash", "-c"))
    assert view("EXPOSE 80 443/udp") == Expose(("80", "443/udp"))
    assert view('VOLUME ["/a", "/b"]') == Volume(("/a", "/b"))
    assert view("VOLUME /a /b") == Volume(("/a", "/b"))
    assert view("STOPSIGNAL 9") == Stopsignal("9")
    assert view("MAINTAINER a b") == Maintainer("a b")
    assert view("HEALTHCHECK --interval=1m30s CMD curl x") == Healthcheck("curl x")
    assert view('HEALTHCHECK CMD ["a"]') == Healthcheck(("a",))
    assert view("HEALTHCHECK NONE") == Healthcheck(None)
    assert view("RUN --mount=type=cache,target=/a --mount=type=tmpfs,target=/b --network=none x") == Run(
        "x", mounts=("type=cache,target=/a", "type=tmpfs,target=/b"), network="none"
    )


def test_flags_end_where_the_command_begins() -> None:
    assert run("RUN --network=host pip install --user x").command == "pip install --user x"
    assert run("RUN -- --help").command == "--help"
    assert only("COPY --chown=a --link b c").flags == {"chown": "a", "link": "true"}


def test_onbuild_holds_an_instruction_with_its_heredocs() -> None:
    instruction = only("ONBUILD RUN <<EOF\nx\nEOF\n")
    assert instruction.view == Onbuild("RUN <<EOF\nx\nEOF")
    held = trigger(instruction)
    assert (held.view, held.line, held.last_line) == (Run("x\n"), 2, 4)


# Heredocs


def test_a_heredoc_alone_is_a_script_for_the_shell() -> None:
    assert run("RUN <<EOF\ncd /a\necho $x\nEOF\n") == Run("cd /a\necho $x\n")
    assert run("RUN <<'EOF'\n# no comment\n\\\nEOF\n") == Run("# no comment\n\\\n")
    assert run("RUN <<-EOF\n\t\ta\n\tEOF\n") == Run("a\n")
    assert run("RUN << EOF\na\nEOF\n") == Run("a\n")


def test_a_heredoc_with_an_interpreter_line_is_an_executable_file() -> None:
    found = run("RUN <<-EOF\n\t#!/usr/bin/env python3\n\tprint(1)\nEOF\n")
    assert found == Run("/dev/pipes/EOF", InlineFile("/dev/pipes/EOF", "#!/usr/bin/env python3\nprint(1)\n"))


def test_a_heredoc_of_a_command_is_left_to_the_shell() -> None:
    assert run("RUN python3 <<'E' > x\nprint()\nE\n").command == "python3 <<'E' > x\nprint()\nE"
    assert run("RUN <<EOF bash\nls\nEOF\n").command == "<<EOF bash\nls\nEOF"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("RUN <<EOF cat\n$((1 + 1)) 'a'\nEOF\n", "2 'a'\n"),
        ("RUN cat <<'EOF' && echo end\n$x\nEOF\n", "$x\nend\n"),
        ("RUN cat <<-EOF\n\ta\n\tEOF\n", "a\n"),
        ("RUN cat <<A - <<B ; \\\n  cat <<C\na\nA\nb\nB\nc\nC\n", "b\nc\n"),
        ("RUN cat /dev/fd/3 3<<X\n\\$y\nX\n", "$y\n"),
        ("RUN cat << 'EOF' | tr a b\naa\nEOF\n", "bb\n"),
        ("RUN <<EOF\necho $((1 << 3))\nEOF\n", "8\n"),
    ],
)
def test_the_shell_reads_what_was_meant(text: str, printed: str, tmp_path: Path) -> None:
    command = run(text).command
    assert isinstance(command, str)
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=20
    )
    assert (done.stdout, done.stderr) == (printed, "")


def test_files_of_copy_keep_their_order_and_know_whether_they_expand() -> None:
    found = view("COPY --chmod=600 a <<one.txt <<-'two' /d/\n1 $x\none.txt\n\t2\n\ttwo\n")
    files = (InlineFile("one.txt", "1 $x\n", expand=True), InlineFile("two", "2\n"))
    assert found == Copy(("a",), "/d/", files, chmod="600")


def test_what_is_not_a_heredoc() -> None:
    assert only('RUN echo "<<EOF"').heredocs == ()
    assert only("RUN cat<<EOF").heredocs == ()
    assert only("RUN cat <<<EOF").heredocs == ()
    assert only('RUN ["<<EOF"]').heredocs == ()
    assert only("CMD cat <<EOF").heredocs == ()
    assert run("RUN echo $((1 << 3))").command == "echo $((1 << 3))"


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=12), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["RUN <<EOF", "RUN cat <<'EOF' > x", "COPY <<EOF /x", 'RUN <<"EOF" sh']),
)
def test_heredoc_bodies_come_back_exactly(lines: list[str], end: str, start: str) -> None:
    body = "".join(line + end for line in lines if line != "EOF")
    text = f"FROM a\n{start}\n{body}EOF\nCMD b\n"
    found = parse(text)
    assert [one.heredocs[0].body for one in found[1:2]] == [body]
    assert found[1].text == f"{start}\n{body}EOF\n"
    assert found[2].view == Cmd("b")


# Refusals


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "there is no FROM"),
        ("ARG a\n", 1, "there is no FROM"),
        ("ARG a\n\nRUN x\nFROM a\n", 3, "RUN stands before FROM; only ARG may"),
        ("FROM a\nRNU x\n", 2, "unknown instruction 'RNU'; did you mean RUN?"),
        ("FROM a\nWORKDR /x\n", 2, "did you mean WORKDIR?"),
        ("FROM a\nRUN <<EOF\nx\n EOF\n", 2, "the heredoc is not ended by a line 'EOF'"),
        ("FROM a\nRUN cat <<EOF; ls\nx\nEOF\n", 2, "'EOF;'; put a blank after its delimiter"),
        ("FROM a\nRUN cat <<- EOF\nhello\nEOF\n", 3, "without a space after it"),
        ("FROM a\nRUN x\n\\\n", 3, "nothing follows it"),
        ("FROM\n", 1, "FROM must be FROM IMAGE"),
        ("FROM a b\n", 1, "FROM must be FROM IMAGE"),
        ("FROM a AS 1x\n", 1, "must begin with a letter"),
        ("FROM a\nCOPY x\n", 2, "COPY needs a source and a destination"),
        ("FROM a\nCOPY x <<EOF\nEOF\n", 2, "no destination after its heredoc"),
        ("FROM a\nCOPY --form=b x y\n", 2, "did you mean --from?"),
        ("FROM a\nCOPY --from x y\n", 2, "write --from=VALUE"),
        ("FROM a\nCOPY --chown=a --chown=b x y\n", 2, "twice"),
        ("FROM a\nRUN --network=lan x\n", 2, "must be default, none or host"),
        ("FROM a\nRUN []\n", 2, "no command"),
        ("FROM a\nENV\n", 2, "ENV needs at least one argument"),
        ("FROM a\nENV A\n", 2, "has no value"),
        ("FROM a\nENV A=1 B\n", 2, "without ="),
        ("FROM a\nENV =1\n", 2, "a value without a name"),
        ("FROM a\nWORKDIR\n", 2, "WORKDIR needs an argument"),
        ("FROM a\nSHELL bash\n", 2, "SHELL needs a JSON array"),
        ("FROM a\nHEALTHCHECK --interval=soon CMD x\n", 2, "must be a duration"),
        ("FROM a\nHEALTHCHECK --retries=-1 CMD x\n", 2, "must be a number"),
        ("FROM a\nHEALTHCHECK x\n", 2, "HEALTHCHECK CMD or HEALTHCHECK NONE"),
        ("FROM a\nONBUILD FROM b\n", 2, "ONBUILD FROM is not allowed"),
        ("# escape=`\n# escape=`\nFROM a\n", 2, "given twice"),
        ("# escape=x\nFROM a\n", 1, "must be \\ or `"),
    ],
)
def test_what_docker_rejects_is_refused_with_its_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(DockerfileError) as caught:
        parse(text, "env/Dockerfile")
    assert str(caught.value).startswith(f"env/Dockerfile line {line}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, TaskError)


# Variables


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("$a-$b.$none", "A-."),
        ("${a}b$ab", "Ab"),
        ("${a:-w}${b:-w}${none:-w}", "Aww"),
        ("${a-w}${b-w}${none-w}", "Aw"),
        ("${a:+w}${b:+w}${none:+w}", "w"),
        ("${a+w}${b+w}${none+w}", "ww"),
        ("${a:?m}${b?m}", "A"),
        ("${none:-${none:-${a}}}", "A"),
        ("'$a' \"$a\" \\$a \"\\$a\" '\\'", "$a A $a $a \\"),
        ("$ $$ 5$", "$  5$"),
        ("${p#*/}|${p##*/}|${p%/*}|${p%%/*}", "b/c.x|c.x|a/b|a"),
        ("${p/b/z}|${p//?/-}|${p/\\/b/}", "a/z/c.x|-------|a/c.x"),
        ('"a\\b" a\\b', "a\\b ab"),
        ("$1x", "x"),
    ],
)
def test_words_expand_as_docker_expands_them(value: str, expanded: str) -> None:
    assert expand(value, {"a": "A", "b": "", "p": "a/b/c.x"}) == expanded


@pytest.mark.parametrize("value", ["${", "${a", "${}", "${a!b}", '"a', "'a", "${b:?}", "${none?}", "${a/b}"])
def test_words_that_cannot_be_expanded(value: str) -> None:
    with pytest.raises(DockerfileError):
        expand(value, {"a": "A", "b": ""})


def test_the_message_of_a_required_variable_is_given() -> None:
    with pytest.raises(DockerfileError, match="v: set me"):
        expand("${v:?set me}", {})


def test_heredocs_expand_with_their_quotes_kept() -> None:
    assert expand_heredoc("'$a' \"${a}\" \\$a \\\n", {"a": "A"}) == "'A' \"A\" $a \n"


def applied(
    text: str, build_args: dict[str, str] | None = None, machine: str = "x86_64"
) -> tuple[list[View], Scope]:
    """Every stage's resolved instructions, and the last scope."""
    instructions = parse(text)
    given = build_args or {}
    variables = global_variables(global_args(instructions), given, platform_args(machine))
    views: list[View] = []
    scope = Scope()
    for stage in stages(instructions):
        views.append(base_image(stage.from_, variables))
        scope = Scope.of_image({"PATH": "/bin"}, variables, given)
        for instruction in stage.instructions:
            instruction, scope = scope.apply(instruction)
            views.append(instruction.view)
    return views, scope


def test_args_before_from_serve_from_and_are_taken_up_by_name() -> None:
    text = "ARG v=1\nARG w=$v.0\nFROM a:$w\nENV x=$v\nARG v\nENV y=$v\nARG v=2\nENV z=$v\n"
    views, scope = applied(text)
    assert views[0] == From("a:1.0")
    assert scope.env == {"PATH": "/bin", "x": "", "y": "1", "z": "2"}


def test_the_callers_build_args_win_where_an_arg_declares_them() -> None:
    _, scope = applied("ARG v=1\nFROM a\nARG v=2\nARG w=$v\nENV x=$v$w$u\n", {"v": "9", "u": "no"})
    assert scope.env["x"] == "99"
    assert scope.variables["v"] == "9"
    assert "v" not in scope.env


def test_the_platform_is_known_where_an_arg_asks_for_it() -> None:
    views, scope = applied(
        "FROM --platform=$BUILDPLATFORM a\nARG TARGETARCH\nENV x=$TARGETARCH$TARGETOS\n", {}, "aarch64"
    )
    assert views[0] == From("a", "linux/arm64")
    assert scope.env["x"] == "arm64"


def test_one_env_sees_the_variables_from_before_it() -> None:
    _, scope = applied("FROM a\nENV a=1\nENV a=2 b=$a PATH=/x:$PATH\n")
    assert scope.env == {"PATH": "/x:/bin", "a": "2", "b": "1"}


def test_which_instructions_are_expanded() -> None:
    text = (
        "FROM a\nENV v=1\nCOPY --chown=$v --chmod=$v $v.a <<E <<'F' /$v/\n$v\nE\n$v\nF\n"
        "ADD $v $v\nEXPOSE $v\nLABEL k$v=$v\nSTOPSIGNAL $v\nUSER $v\nVOLUME $v\nWORKDIR /$v\n"
        'RUN --mount=target=$v echo $v\nCMD $v\nENTRYPOINT ["$v"]\n'
    )
    views, _ = applied(text)
    assert views[2:] == [
        Copy(("1.a",), "/1/", (InlineFile("E", "1\n"), InlineFile("F", "$v\n")), chown="1", chmod="1"),
        Add(("1",), "1"),
        Expose(("1",)),
        Label((("k1", "1"),)),
        Stopsignal("1"),
        User("1"),
        Volume(("1",)),
        Workdir("/1"),
        Run("echo $v", mounts=("target=1",)),
        Cmd("$v"),
        Entrypoint(("$v",)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM a\n\nWORKDIR ${x:?gone}\n", "line 3: x: gone"),
        ("FROM $none\n", "line 1: the image"),
        ("FROM a AS b\nFROM c\nCOPY --from=$b x y\n", "line 3: COPY --from takes no variables"),
        ("FROM a\nCOPY <<E /x\n${\nE\n", "line 2:"),
    ],
)
def test_a_value_that_cannot_be_had_names_its_line(text: str, message: str) -> None:
    with pytest.raises(DockerfileError, match="Dockerfile line") as caught:
        applied(text)
    assert message in str(caught.value)


def test_stages_have_names_and_their_own_instructions() -> None:
    first, second = stages(parse("ARG v\nFROM a AS Build\nRUN x\nRUN y\nFROM b\nCOPY --from=build q r\n"))
    assert (first.index, first.name, len(first.instructions)) == (0, "build", 2)
    assert (second.index, second.name, second.from_.view) == (1, "", From("b"))


# Any text

_PIECES = [
    *(
        "FROM a\n",
        "RUN ",
        "COPY ",
        "ADD ",
        "ENV ",
        "ARG ",
        "LABEL ",
        "CMD ",
        "HEALTHCHECK ",
        "ONBUILD ",
        "SHELL ",
    ),
    *(
        "VOLUME ",
        "EXPOSE ",
        "USER ",
        "NONE",
        "<<EOF",
        "<< EOF",
        "<<-'EOF'",
        "3<<B",
        "EOF\n",
        "B\n",
        "\tEOF\n",
    ),
    *(
        "--from=",
        "--mount=",
        "--",
        "=",
        "a",
        "$a",
        "${",
        "}",
        ":-",
        "#",
        "%",
        "/",
        "*",
        "?",
        "[",
        "]",
        '"a"',
        ",",
    ),
    *("\\", "\\\n", "`", "'", '"', "\n", "\r\n", " ", "\t", "\x1c", "\x85", "\xa0", "\u2028", "\x00", "é"),
    *("# escape=`\n", "# c\n", "\ufeff", "\ud800", "9" * 20, "<", "{"),
]


def everything(text: str) -> None:
    try:
        instructions = parse(text)
    except DockerfileError:
        return
    scope = Scope({"a": "x/y z"})
    for instruction in instructions:
        assert 1 <= instruction.line <= instruction.last_line <= text.count("\n") + 1
        try:
            _, scope = scope.apply(instruction)
            if isinstance(instruction.view, Onbuild):
                trigger(instruction)
        except DockerfileError:
            pass
    assert sum(len(one.text) for one in instructions) <= len(text)


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_texts_made_of_syntax_give_instructions_or_a_refusal(text: str) -> None:
    everything("FROM a\n" + text)
    everything(text)


@given(st.text())
def test_any_text_gives_instructions_or_a_refusal(text: str) -> None:
    everything(text)


@given(st.text(alphabet="$a{}:-+?#%/*\\'\" <"))
def test_any_word_expands_or_is_refused(value: str) -> None:
    with contextlib.suppress(DockerfileError):
        assert isinstance(expand(value, {"a": "a/a*a"}), str)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "RUN a << b\n",
        "RUN a <<b\nb\n",
        "\\\n",
        "\\ ",
        "a\\\n",
        "# c\n",
        "''",
        "'' ",
        '"',
        "<<",
        "<< ",
        "<<a ",
        "${a:-",
        "${a",
        "$",
        "[",
        '["a",',
        "9",
        " ",
        "=",
        "--",
        "ENV a=b\n",
    ],
)
def test_time_is_linear_in_the_text(piece: str) -> None:
    """At this size anything quadratic takes minutes."""
    body = piece * (300_000 // len(piece))
    for start in (
        "",
        "RUN ",
        "RUN <<x ",
        "COPY --from=",
        "ENV a ",
        "ENV a=",
        "LABEL ",
        "HEALTHCHECK --retries=",
        "# escape=",
    ):
        try:
            instructions = parse(
                f"FROM a\n{start}{body}\n" if start != "# escape=" else f"{start}{body}\nFROM a\n"
            )
            if len(instructions) < 5:
                for instruction in instructions:
                    Scope({"a": "b"}).apply(instruction)
        except DockerfileError:
            pass
