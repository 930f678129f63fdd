"""Dockerfiles without Docker: `parse` reads one, `Scope` gives its instructions their values.

    instructions = parse(text)
    variables = global_variables(global_args(instructions), build_args, platform_args())
    for stage in stages(instructions):
        image = base_image(stage.from_, variables).image
        scope = Scope.of_image(env_of(image), variables, build_args)
        for instruction in stage.instructions:
            instruction, scope = scope.apply(instruction)
            match instruction.view: ...

Whatever Docker would reject raises DockerfileError, which names the file and the line.
"""

from tasks.dockerfile.errors import DockerfileError
from tasks.dockerfile.heredoc import Heredoc
from tasks.dockerfile.instruction import (
    Add,
    Arg,
    Cmd,
    Copy,
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
    Shell,
    Stopsignal,
    User,
    View,
    Volume,
    Workdir,
)
from tasks.dockerfile.lexer import expand, expand_heredoc
from tasks.dockerfile.parse import Stage, global_args, parse, stages, trigger
from tasks.dockerfile.scope import Scope, base_image, global_variables, platform_args

__all__ = [
    "Add",
    "Arg",
    "Cmd",
    "Copy",
    "DockerfileError",
    "Entrypoint",
    "Env",
    "Expose",
    "From",
    "Healthcheck",
    "Heredoc",
    "InlineFile",
    "Instruction",
    "Label",
    "Maintainer",
    "Onbuild",
    "Run",
    "Scope",
    "Shell",
    "Stage",
    "Stopsignal",
    "User",
    "View",
    "Volume",
    "Workdir",
    "base_image",
    "expand",
    "expand_heredoc",
    "global_args",
    "global_variables",
    "parse",
    "platform_args",
    "stages",
    "trigger",
]
