"""KEY=VALUE on the command line: YAML scalars and short lists, read safely and checked by kind."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from engine.errors import UserError

MAY_BE_NOTHING = {"learning_starts", "top_quantiles_to_drop_per_net"}
NEVER_ZERO = {"learning_rate", "exploration_fraction", "clip_range"}
AMOUNTS = {"max_grad_norm"}  # any number, though DQN's default is a whole one


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with 3e-4 a number, as YAML 1.2 has it."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_assignment(text: str) -> tuple[str, Any]:
    """Key and value of `KEY=VALUE`. Raises UserError."""
    key, sign, value = text.partition("=")
    if not (key and sign and value):
        raise UserError(f"--set {text}: expected KEY=VALUE, such as n_steps=64")
    try:
        return key, yaml.load(value, Loader=Loader)
    except (yaml.YAMLError, ValueError):  # ValueError: a date that there is not
        raise UserError(
            f"--set {text}: the value is no YAML; expected a number, a word or a list"
        ) from None


def check_kind(said: str, key: str, value: Any, like: Any) -> None:
    """Raise UserError unless `value` is of the kind of `like`, the setting's present value."""
    if isinstance(like, bool):
        good, expected = isinstance(value, bool), "true or false"
    elif isinstance(like, int) and key not in AMOUNTS:
        least = 0 if key in MAY_BE_NOTHING else 1
        good, expected = type(value) is int and value >= least, f"a whole number from {least} up"
    elif isinstance(like, int | float):
        good, expected = _is_amount(value), "a number of at least 0"
        if key in NEVER_ZERO:
            good, expected = good and value > 0, "a number above 0"
    elif isinstance(like, str):
        words = isinstance(value, str) and re.fullmatch(r"auto(_\d*\.?\d+)?", value)
        good, expected = bool(words) or _is_number(value), "a number, auto, or auto_0.1"
    else:
        good, expected = value is None or _is_amount(value), "a number of at least 0, or null"
    if not good:
        raise UserError(f"{said}: expected {expected}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0
