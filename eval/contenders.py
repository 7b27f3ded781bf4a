"""Who is compared: controllers and systems by name, and the engine that each is served on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.classes import ClassTable
from engine.errors import UserError
from engine.protocol import Controller
from policies import registry
from policies.systems import Scheduling, scheduling_of

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.request import Request
    from engine.server import Server
    from engine.settings import EngineSettings
    from eval.runner import MakeEngine

WHOLE_PROMPTS = 1_000_000
"""Prompt tokens a step that no batch of prompts reaches: all of them are read before it."""


def named(specs: Sequence[str], option: str = "--policy") -> dict[str, Controller]:
    """Controllers and systems by the name that the table shows. UserError for an unknown one.

    `option` is the flag that gave them.
    """
    found: dict[str, Controller] = {}
    for spec in specs:
        try:
            controller = registry.make(spec)
        except UserError as error:
            raise UserError(f"{option} {error} (python evaluate.py --list shows them)") from error
        name = controller.name
        if (exported := registry.exported_folder(spec)) is not None:
            folder = exported.resolve()
            run = folder.parent if folder.name == "controller" else folder
            name = f"{name} ({run.name})"
        if name in found:
            raise UserError(f"{option} {spec}: {name} is there already; name each controller once")
        found[name] = controller
    return found


def marked(controllers: Mapping[str, Controller]) -> dict[str, Controller]:
    """The same, with `(lossy)` behind the name of who may change the text.

    Among lossless ones it competes with something that they may not give up.
    """
    return {
        name if controller.lossless else f"{name} (lossy)": controller
        for name, controller in controllers.items()
    }


def subject_of(specs: Sequence[str], names: Sequence[str]) -> str:
    """Whom the verdict is about: the first learned controller, else the first."""
    learned = [
        name
        for spec, name in zip(specs, names, strict=True)
        if registry.exported_folder(spec) is not None
    ]
    return learned[0] if learned else names[0]


def list_controllers() -> str:
    """Every controller, system and wrapper: name, needs, whether lossless, source, summary."""
    from policies.listing import as_text, rows  # deferred: it imports all of them

    return as_text(rows())


def engine_makers(
    server: Server,
    controllers: Mapping[str, Controller],
    classes: ClassTable,
    settings: EngineSettings,
) -> dict[str, MakeEngine]:
    """By name, what builds its engines: as `settings` say, for a system as its own do."""

    def maker(controller: Controller) -> MakeEngine:
        scheduling = scheduling_of(controller)
        if scheduling is not None:
            return _system_maker(server, scheduling, classes, settings)
        return lambda requests: server.engine(requests, classes, settings)

    return {name: maker(controller) for name, controller in controllers.items()}


def _system_maker(
    server: Server, scheduling: Scheduling, classes: ClassTable, settings: EngineSettings
) -> MakeEngine:
    own = scheduled(settings, scheduling)
    table = tightest_first(classes) if scheduling.order == "priority" else classes

    def make(requests: list[Request]) -> Engine:
        engine = server.engine(requests, table, own)
        if scheduling.max_running is not None:  # before the first plan, which says it again
            engine.max_running = min(scheduling.max_running, engine.limits.slots)
        return engine

    return make


def scheduled(settings: EngineSettings, scheduling: Scheduling) -> EngineSettings:
    """The settings with a system's order, prefill chunk and overload policy."""
    from engine.overload import OverloadRule

    return replace(
        settings,
        order=scheduling.order,
        prefill_tokens=scheduling.prefill_tokens or WHOLE_PROMPTS,
        overload=OverloadRule(scheduling.overload),
    )


def tightest_first(classes: ClassTable) -> ClassTable:
    """The classes with priorities by TPOT objective, unless they have some of their own."""
    if any(c.priority for c in classes.classes):
        return classes
    ratios = sorted((c.tpot_ratio for c in classes.classes), reverse=True)
    return ClassTable(
        tuple(replace(c, priority=ratios.index(c.tpot_ratio)) for c in classes.classes)
    )
