"""Text to token ids and back, and the chat template, without importing transformers.

`tokenizers` reads tokenizer.json; the template runs in jinja2's sandbox, since it comes with the
model and is not ours. Which folder that is, models/registry.py says.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from models.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Template

Message = dict[str, str]
SPECIAL_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """The tokenizer of one model folder. Ids are Python ints in `[0, vocab_size)`.

    No special token is ever added by itself: `chat` takes what the template writes.
    """

    def __init__(self, folder: Path) -> None:
        """Read tokenizer.json and tokenizer_config.json; UserError when one is missing or bad."""
        from tokenizers import Tokenizer as Backend

        self.folder = folder
        self._config = _read_config(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(f"The folder {folder} has no tokenizer.json; save the fast tokenizer.")
        # read first: an unreadable file is then an OSError, and only bad content is left to catch
        text = path.read_text("utf-8")
        try:
            self._backend = Backend.from_str(text)
        except Exception as error:  # tokenizers raises bare Exception for every bad file
            raise UserError(f"{path} is not a tokenizer file ({error}); restore it.") from error

    @property
    def vocab_size(self) -> int:
        """Tokens with a text, special ones included; a model's embedding may be padded beyond."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def special_tokens(self) -> dict[str, str]:
        """The text of the tokens by role (`eos_token` …), as far as the model names them."""
        found = {}
        for role in SPECIAL_ROLES:
            value = self._config.get(role)
            # older files write a token as {"content": ..., "lstrip": ...}
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found[role] = text
        return found

    @cached_property
    def eos_id(self) -> int:
        """The id that ends an answer; UserError when the model names none."""
        text = self.special_tokens.get("eos_token")
        token_id = None if text is None else self._backend.token_to_id(text)
        if token_id is None:
            raise UserError(
                f"{self.folder / 'tokenizer_config.json'} names no eos_token of the vocabulary "
                f"(found {text!r}); add it, or answers would never end."
            )
        return int(token_id)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written out in it become their ids."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Text of `ids`. Bytes that are no whole character yet show as U+FFFD."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a conversation (`role` and `content` each) in the model's chat format.

        Equal to transformers' `apply_chat_template`. Raises UserError when the model has no
        template, or its template refuses the messages.
        """
        from jinja2 import TemplateError

        try:
            text = self._template.render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                **self.special_tokens,
            )
        except TemplateError as error:
            raise UserError(f"The chat template of {self.folder} failed: {error}.") from error
        return self.encode(text)

    def chat_prompt(self, user: str) -> list[int]:
        """Token ids of one user turn, ready for the answer; UserError for an empty prompt."""
        if not user.strip():
            raise UserError("The prompt is empty; give at least one word.")
        return self.chat([{"role": "user", "content": user}])

    @cached_property
    def _template(self) -> "Template":
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        beside = self.folder / "chat_template.jinja"
        source = self._config.get("chat_template")
        if beside.is_file():
            source = beside.read_text("utf-8")
        if not isinstance(source, str):
            raise UserError(
                f"The model in {self.folder} has no chat template; use a chat-tuned model, or "
                f"add chat_template to its tokenizer_config.json."
            )
        # the same settings and names as transformers gives a template
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        return environment.from_string(source)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"The folder {folder} has no tokenizer_config.json; give a complete model folder."
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); restore the file.") from error
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no JSON object; restore the file.")
    return config


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
