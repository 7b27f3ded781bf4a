"""From what a person types to a controller: a name, a call, `module:Class` or an exported folder.

A wrapper stands before the controller that it wraps, with a colon, takes parameters and may nest:
`tiered:eagle3(6, 8, 32)`, `shielded:held(4):adaserve`. Nothing is imported before it is asked for,
so that listing the names costs nothing. How it is typed is `policies.grammar`'s, the controllers of
other packages are `policies.installed`'s, the table for people is `policies.listing`'s.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import UserError
from engine.protocol import Controller
from policies.grammar import first_part, name_of, read_call
from policies.installed import installed, package_of


class Entry(NamedTuple):
    """Where a named controller, or a wrapper, lives."""

    module: str
    attribute: str
    summary: str
    source: str = ""
    """Who published the rule, and where; DraftGym's own say so."""


ENTRIES: dict[str, Entry] = {
    "autoregressive": Entry(
        "policies.fixed", "Autoregressive", "ordinary decoding, no drafts", "standard decoding"
    ),
    "capped-tree": Entry(
        "policies.fixed",
        "CappedTree",
        "one tree, few requests at once: capped-tree(2, 1, 2, batch=4)",
        "DraftGym",
    ),
    "chain": Entry(
        "policies.fixed",
        "Chain",
        "k drafted tokens in a row: chain(k=4)",
        "Leviathan et al. 2023 (arXiv 2211.17192)",
    ),
    "eagle3": Entry(
        "policies.fixed",
        "Eagle3",
        "beam tree: eagle3(depth=6, width=8, nodes=32), EAGLE-3's way",
        "Li et al. 2025 (arXiv 2503.01840)",
    ),
    "best-fixed": Entry(
        "policies.best_fixed",
        "BestFixed",
        "the fixed tree that a sweep finds best at the load",
        "DraftGym's sweep",
    ),
    "adaserve": Entry(
        "policies.adaserve",
        "AdaServe",
        "nodes where objectives need them: adaserve(budget=1.25)",
        "Li et al., EuroSys 2026 (arXiv 2501.12162)",
    ),
    "adaserve-artifact": Entry(
        "policies.adaserve_artifact",
        "AdaServeArtifact",
        "adaserve as its public code has it",
        "flexflow/flexflow-serve, branch specscheduler",
    ),
    "adaptivespec": Entry(
        "policies.adaptivespec",
        "AdaptiveSpec",
        "trees by confidence and agreement, and a margin: adaptivespec(margin=0.6)",
        "rebuilt from a digest, constants ours",
    ),
    "adaptivespec-tree": Entry(
        "policies.adaptivespec",
        "AdaptiveSpecTree",
        "adaptivespec without its margin, lossless: adaptivespec-tree(weight=0.5)",
        "rebuilt from a digest, constants ours",
    ),
    "adaptivespec-margin": Entry(
        "policies.adaptivespec",
        "AdaptiveSpecMargin",
        "a margin on a fixed tree: adaptivespec-margin(margin=0.6, static=(6, 8, 32))",
        "rebuilt from a digest, constants ours",
    ),
    "specdec-stop": Entry(
        "policies.specdec_stop",
        "SpecdecStop",
        "chain that stops where rejection is likely: specdec-stop(threshold=0.3)",
        "Huang et al. 2024 (arXiv 2405.19715)",
    ),
    "dsde": Entry(
        "policies.dsde",
        "Dsde",
        "chain that follows how steady divergence is: dsde(decay=0.85)",
        "Yang et al. 2025 (arXiv 2509.01083)",
    ),
    "slack-priced": Entry(
        "policies.slack_priced",
        "SlackPriced",
        "ours: tokens weighed by slack, over time and joules: slack-priced(joule_s=0.0)",
        "DraftGym",
    ),
    "sglang-ema": Entry(
        "policies.sglang_ema",
        "SglangEma",
        "chain that follows accepted drafts: sglang-ema(steps=3)",
        "sgl-project/sglang, adaptive_spec_params.py",
    ),
    "adaptive-verification": Entry(
        "policies.adaptive_verification",
        "AdaptiveVerification",
        "chains verified as far as the batch profits: adaptive-verification(steps=7)",
        "vllm-project/vllm, adaptive_verification.py",
    ),
    "bandit-ucb": Entry(
        "policies.bandit_ucb",
        "BanditUcb",
        "upper bounds on fixed trees: bandit-ucb(arms=(0, 2, 4))",
        "Hou et al. 2025 (arXiv 2505.15141)",
    ),
    "nightjar": Entry(
        "policies.nightjar",
        "Nightjar",
        "bandit by batch size, resuming priced: nightjar(longest=5)",
        "Li et al. 2025 (arXiv 2512.22420)",
    ),
    "hedge": Entry(
        "policies.hedge",
        "Hedge",
        "ours: tree shapes judged by what all would have brought: hedge(rate=0.5)",
        "DraftGym, after Freund and Schapire 1997, Herbster and Warmuth 1998",
    ),
    "sequoia": Entry(
        "policies.sequoia",
        "Sequoia",
        "best tree for acceptance by child rank: sequoia(nodes=32)",
        "Chen et al. 2024 (arXiv 2402.12374)",
    ),
    "smart": Entry(
        "policies.smart",
        "Smart",
        "tree that grows while a node pays: smart(discount=0.8)",
        "Wang and Zhou 2026 (arXiv 2604.09731)",
    ),
    "turbospec": Entry(
        "policies.turbospec",
        "TurboSpec",
        "chain with the best batch goodput: turbospec(longest=8)",
        "Liu et al. 2024 (arXiv 2406.14066)",
    ),
    # Systems: a controller with frozen scheduler settings.
    "sarathi": Entry(
        "policies.systems",
        "Sarathi",
        "system: prompts in chunks: sarathi(chunk_tokens=64)",
        "Agrawal et al. 2024 (arXiv 2403.02310)",
    ),
    "vllm": Entry(
        "policies.systems",
        "Vllm",
        "system: prompts in full first, no drafts, fcfs",
        "vLLM 0.8.4, as AdaServe's baseline",
    ),
    "vllm-priority": Entry(
        "policies.systems",
        "VllmPriority",
        "system: strict class first: vllm-priority(batch=4)",
        "AdaServe's baseline",
    ),
    "vllm-spec": Entry(
        "policies.systems",
        "VllmSpec",
        "system: vllm with chains: vllm-spec(k=4)",
        "AdaServe's baseline",
    ),
}

WRAPPERS: dict[str, Entry] = {
    "held": Entry(
        "policies.held", "held", "decides every n iterations: held(4):adaserve", "DraftGym"
    ),
    "shadow": Entry(
        "policies.shadow",
        "shadow",
        "compares another controller's plans, never acts on them: shadow('adaserve'):chain",
        "DraftGym",
    ),
    "shielded": Entry(
        "policies.shielded",
        "shielded",
        "clips, and falls back where the controller fails: shielded(late_s=0.002):adaserve",
        "DraftGym",
    ),
    "tiered": Entry(
        "policies.tiered",
        "tiered",
        "rounds trees to what the device has CUDA graphs for",
        "DraftGym",
    ),
}


def names() -> list[str]:
    """Names of DraftGym's own controllers, sorted."""
    return sorted(ENTRIES)


def offered() -> dict[str, Entry]:
    """Controllers of other installed packages. Raises UserError where one takes a name of ours."""
    return {
        name: Entry(point.module, point.attr, "", package_of(point))
        for name, point in installed(ENTRIES | WRAPPERS).items()
    }


def make(spec: str, **params: Any) -> Controller:
    """Build the controller that `spec` names.

    `spec` is a registry name (`chain`), a call (`chain(4)`, `eagle3(depth=5, width=4, nodes=8)`),
    `module:Class` (also as a call), the folder of an exported controller, or a run folder with
    one in `controller/`; before any of these may stand wrappers (`held(4):chain(4)`). `params` are
    further keyword arguments of the controller inside. Raises UserError.
    """
    first, inner = first_part(spec)
    if name_of(first) in WRAPPERS:
        call = read_call(first)
        if not inner:
            raise UserError(f"{spec}: wraps another controller; expected as in {first}:eagle3")
        entry = WRAPPERS[call.name]
        wrap = getattr(importlib.import_module(entry.module), entry.attribute)
        return _build(spec, wrap, [make(inner, **params), *call.positional], call.keywords)
    folder = exported_folder(spec)
    if folder is not None:
        if params:
            given = ", ".join(sorted(params))
            raise UserError(f"{spec}: an exported controller takes no parameters, got {given}")
        from policies.exported import load_exported

        return load_exported(folder)
    call = read_call(spec)
    return _build(spec, _find(spec, call.name), call.positional, {**call.keywords, **params})


def exported_folder(spec: str) -> Path | None:
    """The exported controller's folder that `spec` points to, None when it points to none.

    Wrappers before it are passed over.
    """
    first, inner = first_part(spec)
    if name_of(first) in WRAPPERS:
        return exported_folder(inner) if inner else None
    for folder in (Path(spec), Path(spec) / "controller"):
        if (folder / "manifest.json").is_file():
            return folder
    return None


def class_of(entry: Entry) -> type[Controller]:
    """Import what an entry stands for. Raises UserError where it is not there."""
    return _import_class(f"{entry.module}:{entry.attribute}", entry.module, entry.attribute)


def _find(spec: str, name: str) -> type[Controller]:
    """The class behind a name, ours or another package's, or behind `module:Class`."""
    if name in ENTRIES:
        return class_of(ENTRIES[name])
    module_name, colon, attribute = name.partition(":")
    if colon:
        return _import_class(spec, module_name, attribute)
    others = offered()
    if name in others:
        return class_of(others[name])
    if Path(spec).is_dir():
        raise UserError(
            f"{spec}: the folder holds no manifest.json; expected an exported controller, "
            "which `python export.py` writes"
        )
    known = sorted({*ENTRIES, *others})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ";"
    raise UserError(
        f"{spec}: no controller of that name{hint} "
        f"known are {', '.join(known)}, module:Class, or an exported controller's folder"
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
    spec: str,
    build: Callable[..., Controller],
    positional: list[Any],
    keywords: dict[str, Any],
) -> Controller:
    """Call a class or a wrapper after checking that the arguments fit its signature."""
    signature = inspect.signature(build)
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        raise UserError(
            f"{spec}: parameters do not fit ({error}); expected {build.__name__}{signature}"
        ) from error
    return build(*positional, **keywords)
