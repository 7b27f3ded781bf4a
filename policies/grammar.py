"""How a controller is typed: `name`, `name(4, budget=1.3)`, and before it wrappers with colons.

Parameters are literals, so that a command line can run no code. `shielded:held(4):adaserve` is the
wrapper `shielded` around `held(4):adaserve`; in `module:Class` the colon parts no wrapper. What the
names mean is the registry's.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from engine.errors import UserError


class Call(NamedTuple):
    """A name and its parameters."""

    name: str
    positional: list[Any]
    keywords: dict[str, Any]


def first_part(spec: str) -> tuple[str, str | None]:
    """What stands before the first colon outside brackets, and what behind it; None without one."""
    spec = spec.strip()
    for at, sign in enumerate(spec):
        if sign == ":" and spec.count("(", 0, at) == spec.count(")", 0, at):
            return spec[:at].strip(), spec[at + 1 :].strip()
    return spec, None


def name_of(part: str) -> str:
    """The name before the brackets."""
    return part.partition("(")[0].strip()


def read_call(spec: str) -> Call:
    """Name and parameters of `name` or `name(…)`. Raises UserError for what is no literal."""
    name, opened, rest = spec.strip().partition("(")
    if not opened:
        return Call(name, [], {})
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("not one call")
        positional = [ast.literal_eval(argument) for argument in call.args]
        keywords = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
        if len(keywords) != len(call.keywords):
            raise ValueError("** is not a literal")
    except (SyntaxError, ValueError) as error:
        raise UserError(
            f"{spec}: the parameters cannot be read; expected literals as in eagle3(5, 4, 8) "
            "or eagle3(depth=5)"
        ) from error
    return Call(name.strip(), positional, keywords)
