"""From what a person types to a controller: a name, a call, `module:Class` or an exported folder.

A wrapper stands before the controller that it wraps, with a colon: `tiered:eagle3(6, 8, 32)`.
Nothing is imported before it is asked for, so that listing the names costs nothing.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import UserError
from engine.protocol import Controller


class Entry(NamedTuple):
    """Where a named controller lives."""

    module: str
    attribute: str
    summary: str


ENTRIES: dict[str, Entry] = {
    "autoregressive": Entry("policies.fixed", "Autoregressive", "ordinary decoding, no drafts"),
    "chain": Entry("policies.fixed", "Chain", "k drafted tokens in a row: chain(k=4)"),
    "eagle3": Entry(
        "policies.fixed", "Eagle3", "beam tree: eagle3(depth=6, width=8, nodes=32), EAGLE-3's way"
    ),
    "sglang-ema": Entry(
        "policies.sglang_ema",
        "SglangEma",
        "chain that follows accepted drafts: sglang-ema(steps=3)",
    ),
    # Systems: a controller with frozen scheduler settings.
    "sarathi": Entry(
        "policies.systems", "Sarathi", "system: prompts in chunks: sarathi(chunk_tokens=64)"
    ),
    "vllm": Entry("policies.systems", "Vllm", "system: prompts in full first, no drafts, fcfs"),
    "vllm-priority": Entry(
        "policies.systems", "VllmPriority", "system: strict class first: vllm-priority(batch=4)"
    ),
    "vllm-spec": Entry("policies.systems", "VllmSpec", "system: vllm with chains: vllm-spec(k=4)"),
}

WRAPPERS: dict[str, Entry] = {
    "tiered": Entry(
        "policies.tiered", "tiered", "rounds trees to what the device has CUDA graphs for"
    ),
}


def names() -> list[str]:
    """Names that `make` knows, sorted."""
    return sorted(ENTRIES)


def make(spec: str, **params: Any) -> Controller:
    """Build the controller that `spec` names.

    `spec` is a registry name (`chain`), a call (`chain(4)`, `eagle3(depth=5, width=4, nodes=8)`),
    `module:Class` (also as a call), the folder of an exported controller, or a run folder with
    one in `controller/`; before any of these may stand wrappers (`tiered:chain(4)`). `params` are
    further keyword arguments. Raises UserError.
    """
    wrapper, _, inner = spec.strip().partition(":")
    if wrapper in WRAPPERS:
        if not inner:
            raise UserError(f"{spec}: wraps another controller; expected as in {wrapper}:eagle3")
        entry = WRAPPERS[wrapper]
        wrap = getattr(importlib.import_module(entry.module), entry.attribute)
        wrapped: Controller = wrap(make(inner, **params))
        return wrapped
    folder = exported_folder(spec)
    if folder is not None:
        if params:
            raise UserError(
                f"{spec}: an exported controller takes no parameters, got {_keys(params)}"
            )
        from policies.learned import LearnedController

        return LearnedController.load(folder)
    name, positional, keywords = _parse(spec)
    return _build(spec, _find(spec, name), positional, {**keywords, **params})


def exported_folder(spec: str) -> Path | None:
    """The exported controller's folder that `spec` points to, None when it points to none.

    Wrappers before it are passed over.
    """
    wrapper, _, inner = spec.strip().partition(":")
    if wrapper in WRAPPERS:
        return exported_folder(inner) if inner else None
    for folder in (Path(spec), Path(spec) / "controller"):
        if (folder / "manifest.json").is_file():
            return folder
    return None


def _parse(spec: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Name, positional and keyword arguments of `name`, `name(…)`; literals only."""
    name, opened, rest = spec.strip().partition("(")
    if not opened:
        return name, [], {}
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
    return name.strip(), positional, keywords


def _find(spec: str, name: str) -> type[Controller]:
    """The class behind a registry name or `module:Class`."""
    if name in ENTRIES:
        entry = ENTRIES[name]
        found: type[Controller] = getattr(importlib.import_module(entry.module), entry.attribute)
        return found
    module_name, colon, attribute = name.partition(":")
    if colon:
        return _import_class(spec, module_name, attribute)
    if Path(spec).is_dir():
        raise UserError(
            f"{spec}: the folder holds no manifest.json; expected an exported controller, "
            "which `python export.py` writes"
        )
    near = difflib.get_close_matches(name, ENTRIES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ";"
    raise UserError(
        f"{spec}: no controller of that name{hint} "
        f"known are {', '.join(names())}, module:Class, or an exported controller's folder"
    )


def _import_class(spec: str, module_name: str, attribute: str) -> type[Controller]:
    """The class that `module:Class` names."""
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and not module_name.startswith(error.name or "-"):
            raise  # the module is there, and what it needs itself is not
        raise UserError(
            f"{spec}: no module {module_name!r}; expected module:Class on the import path"
        ) from error
    found = getattr(module, attribute, None)
    if not (inspect.isclass(found) and issubclass(found, Controller)):
        raise UserError(
            f"{spec}: {module_name} has no controller class {attribute!r}; "
            "expected a subclass of engine.protocol.Controller"
        )
    return found


def _build(
    spec: str, cls: type[Controller], positional: list[Any], keywords: dict[str, Any]
) -> Controller:
    """Call the class after checking that the arguments fit its signature."""
    signature = inspect.signature(cls)
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        raise UserError(
            f"{spec}: parameters do not fit ({error}); expected {cls.__name__}{signature}"
        ) from error
    return cls(*positional, **keywords)


def _keys(params: dict[str, Any]) -> str:
    return ", ".join(sorted(params))
