"""A model folder's tokenizer and chat template, without the weight of importing transformers.

`tokenizer.json` is the tokenizer itself; the template is rendered as transformers renders it (a test
holds the two equal).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


class ChatFormatError(ValueError):
    """A tokenizer or chat template that cannot carry tool calls: one sentence that says why."""


class ModelTokenizer:
    """Text to ids and back, and messages to text."""

    def __init__(self, name: str, backend: Tokenizer, template: str, variables: dict[str, Any] | None = None):
        self.name = name
        """Where it came from, for error messages."""
        self._backend = backend
        self._template = _compile(template)
        self._variables = variables or {}
        self.added_ids: frozenset[int] = frozenset(backend.get_added_tokens_decoder())
        """Tokens matched as whole strings before the text is split: special tokens, tags and the like."""

    @classmethod
    def load(cls, folder: Path) -> ModelTokenizer:
        """From a model folder. Raises ChatFormatError."""
        if not folder.is_dir():
            raise ChatFormatError(
                f"no model folder at {folder}: correct the path in the config, or make the model first"
            )
        try:
            backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises bare Exception
            raise ChatFormatError(f"{folder}/tokenizer.json cannot be loaded ({error})") from error
        config_file = folder / "tokenizer_config.json"
        try:
            config = json.loads(config_file.read_text()) if config_file.is_file() else {}
        except (OSError, ValueError) as error:
            raise ChatFormatError(f"{config_file} cannot be loaded ({error})") from error
        template_file = folder / "chat_template.jinja"
        template = template_file.read_text() if template_file.is_file() else config.get("chat_template")
        if not isinstance(template, str):
            raise ChatFormatError(
                f"{folder} has no chat template: add chat_template.jinja to it, or `chat_template` to its "
                "tokenizer_config.json"
            )
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        variables = {name: _content(config[name]) for name in names if config.get(name)}
        return cls(str(folder), backend, template, variables)

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included."""
        return str(self._backend.decode(list(token_ids), skip_special_tokens=False))

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> str:
        """The messages and tools as text, up to where the next assistant message begins."""
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=True, **self._variables
            )
        except TemplateError as error:
            raise ChatFormatError(f"the chat template of {self.name} cannot be rendered ({error})") from error

    def without(self, reserved: Collection[int]) -> ModelTokenizer:
        """A copy to which the text of special and of reserved tokens is ordinary text."""
        spec = json.loads(self._backend.to_str())
        for token in spec["added_tokens"]:
            if token["special"] or token["id"] in reserved:
                # Renamed to what no text contains, not removed: ids of added tokens are given by position.
                token["content"] = f"{secrets.token_hex(16)}-{token['id']}"
                token["special"] = False
        copy = object.__new__(ModelTokenizer)
        copy.__dict__.update(self.__dict__, _backend=Tokenizer.from_str(json.dumps(spec)))
        return copy


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _compile(template: str) -> Template:
    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ChatFormatError(f"the chat template is not valid ({error})") from error
