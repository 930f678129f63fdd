"""One sentence for a mistake in a configuration: the key, what is wrong with it, and what to write."""

from __future__ import annotations

import difflib
import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_KINDS = {
    "int_parsing": "should be an integer",
    "int_type": "should be an integer",
    "int_from_float": "should be an integer",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "string_type": "should be text",
    "path_type": "should be a path",
    "list_type": "should be a list",
    "dict_type": "should hold keys and values",
    "model_type": "should hold keys and values",
    "model_attributes_type": "should hold keys and values",
}


def explain(root: type[BaseModel], error: ValidationError) -> tuple[list[str], str]:
    """The key of the first mistake in the data of a `root`, and the mistake as a sentence without its place.

    An unknown key comes before anything else, since a misspelt key also makes another one missing.
    """
    details = error.errors(include_url=False)
    detail = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
    models, key = _walk(root, detail)
    return key, _sentence(detail, models, key)


def _sentence(detail: ErrorDetails, models: Sequence[type[BaseModel]], key: Sequence[str]) -> str:
    name = ".".join(key)
    if detail["type"] == "extra_forbidden":
        valid = list(dict.fromkeys(field for model in models for field in model.model_fields))
        close = difflib.get_close_matches(key[-1], valid, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"valid keys there are {', '.join(valid)}"
        return f"unknown key '{name}'; {hint}"
    if detail["type"] == "missing":
        return f"the key '{name}' is missing"
    message = _KINDS.get(detail["type"], detail["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should", "should")
    given = "" if isinstance(detail["input"], dict | list) else f", and not {detail['input']!r}"
    return f"'{name}' {message}{given}" if message.startswith("should") else f"'{name}': {message}"


def line_of(text: str, key: Sequence[str]) -> str:
    """`:LINE` of the deepest part of `key` that the YAML text holds, or nothing."""
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for part in key:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == part), None)
            if found is not None:
                line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
    return "" if line is None else f":{line}"


def _walk(root: type[BaseModel], detail: ErrorDetails) -> tuple[list[type[BaseModel]], list[str]]:
    """The models that hold the key a mistake is about, and that key as the file spells it.

    pydantic's own location also names members of unions, which are no keys of the file.
    """
    models: list[type[BaseModel]] = [root]
    key: list[str] = []
    *parents, last = detail["loc"] or ("",)
    for part in parents:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if isinstance(part, int) or fields:
            key.append(str(part))
        if fields:
            models = [model for field in fields for model in _models(field.annotation)]
        else:
            models = [model for model in models if _has_tag(model, part)] or models
    known = any(last in model.model_fields for model in models)
    if known or isinstance(last, int) or detail["type"] in ("extra_forbidden", "missing"):
        key.append(str(last))
    return models, key


def _has_tag(model: type[BaseModel], tag: Any) -> bool:
    """Whether a field of the model, such as `kind`, is that constant: it tells members of a union apart."""
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation may stand for, inside Annotated, unions and lists."""
    if get_origin(annotation) in (Annotated, Union, types.UnionType, list, dict):
        return [model for inner in get_args(annotation) for model in _models(inner)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
