"""Systems: a controller under settings that no plan changes, and engines set to them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES, ClassTable, SLOClass
from engine.errors import UserError
from engine.loop import Engine
from engine.observability.observing import serve_observed
from engine.protocol import Bools, Candidates, Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from eval import runner
from eval.compare import compare
from eval.contenders import (
    WHOLE_PROMPTS,
    engine_makers,
    list_controllers,
    named,
    tightest_first,
)
from eval.runner import engine_settings
from policies import registry
from policies.systems import Scheduling, System, compose
from tests import tiny_recording

ALL = ("vllm", "vllm-priority", "sarathi", "vllm-spec(4)", "vllm-spec(6)", "vllm-spec(8)")


@pytest.fixture(scope="module")
def server() -> LiveServer:
    return tiny_server(limits=Limits(slots=6))


def engine_of(server: LiveServer, spec: str, requests: list[Request]) -> tuple[Controller, Engine]:
    """The system and an engine for it."""
    ((name, controller),) = named([spec]).items()
    makers = engine_makers(server, {name: controller}, DEFAULT_CLASSES, server.settings)
    return controller, makers[name](requests)


def requests(count: int, prompt_tokens: int = 6, tokens: int = 6) -> list[Request]:
    rng = np.random.default_rng(0)
    return [
        Request(i, i % 3, rng.integers(0, 64, prompt_tokens).tolist(), tokens, 0.0)
        for i in range(count)
    ]


def test_the_named_systems_are_what_they_say(server: LiveServer) -> None:
    found = {}
    for spec in ALL:
        controller, engine = engine_of(server, spec, requests(1))
        assert isinstance(controller, System)
        found[controller.name] = engine_settings(engine)
    whole = {"order": "fcfs", "prefill_tokens": WHOLE_PROMPTS, "max_running": 6, "overload": "none"}
    assert found == {
        "vllm": whole,
        "vllm-priority(4)": whole | {"order": "priority", "max_running": 4},
        "sarathi": whole | {"prefill_tokens": 64},
        **{f"vllm-spec({k})": whole for k in (4, 6, 8)},
    }


def depths(server: LiveServer, spec: str) -> set[int]:
    controller, engine = engine_of(server, spec, requests(2))
    controller.reset(engine.limits)
    view = engine.next_decision()
    assert view is not None
    plan = controller.plan(view)
    assert plan.prefill_tokens is None
    return set(plan.depth.tolist())


def test_only_the_speculating_system_drafts(server: LiveServer) -> None:
    assert depths(server, "vllm") == depths(server, "sarathi") == {0}
    assert depths(server, "vllm-spec(6)") == {6}


def test_prefill_first_reads_all_prompts_before_anybody_decodes(server: LiveServer) -> None:
    # Four prompts of 40 tokens: whole, all four decode in the first iteration; in chunks of 64
    # tokens the first has company from the second on.
    _, engine = engine_of(server, "vllm", requests(4, 40))
    whole = engine.next_decision()
    assert whole is not None and whole.active.sum() == 4 and whole.prefilling == 0
    _, engine = engine_of(server, "sarathi", requests(4, 40))
    chunked = engine.next_decision()
    assert chunked is not None and chunked.active.sum() < 4 and chunked.prefilling > 0


class Widest:
    """An observer that keeps the largest batch, and who decoded first."""

    def __init__(self) -> None:
        self.running = 0
        self.classes: list[int] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """The slots that held a request."""
        self.running = max(self.running, int(view.active.sum()) + view.prefilling)
        self.classes += [int(c) for c in outcome.slo_class[outcome.ran]]

    def on_record(self, record: object) -> None:
        """Not looked at."""

    def close(self) -> None:
        """Nothing is written."""


@pytest.mark.parametrize(("spec", "most"), [("vllm-priority(batch=2)", 2), ("vllm", 6)])
def test_the_batch_cap_holds_from_the_first_iteration_to_the_last(
    server: LiveServer, spec: str, most: int
) -> None:
    controller, engine = engine_of(server, spec, requests(9))
    widest = Widest()
    serve_observed(engine, controller, [widest])
    assert widest.running == most


def test_strict_priority_serves_the_tightest_class_first(server: LiveServer) -> None:
    # Six requests, classes 0 1 2 0 1 2, two at a time: coding (the tightest) before the others.
    controller, engine = engine_of(server, "vllm-priority(2)", requests(6))
    widest = Widest()
    serve_observed(engine, controller, [widest])
    assert list(dict.fromkeys(widest.classes)) == [0, 1, 2]
    _, fcfs = engine_of(server, "vllm", requests(6))
    view = fcfs.next_decision()
    assert view is not None and set(view.slo_class[view.active]) == {0, 1, 2}


def test_priorities_of_ones_own_are_kept() -> None:
    own = ClassTable((SLOClass("a", 1.0), SLOClass("b", 9.0, priority=3)))
    assert tightest_first(own) is own
    ranks = [c.priority for c in tightest_first(DEFAULT_CLASSES).classes]
    assert ranks == [2, 1, 0]
    tied = ClassTable((SLOClass("a", 2.0), SLOClass("b", 2.0), SLOClass("c", 1.0)))
    assert [c.priority for c in tightest_first(tied).classes] == [0, 0, 2]


class Greedy(Controller):
    """Wants its own prompts and batch, selects by itself and stops drafting by itself."""

    name = "greedy"
    lossless = False
    asked = 0

    def plan(self, view: View) -> Plan:
        """A tree, and settings that are not its own to choose."""
        plan = uniform_plan(view.limits, 3, 2, 4)
        return plan._replace(prefill_tokens=1, max_running=1)

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools:
        """After the first step nobody drafts on."""
        return np.zeros(view.limits.slots, np.bool_)

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """Nothing."""
        self.asked += 1
        return np.zeros(candidates.parent.shape, np.bool_)


def test_a_system_of_any_controller_keeps_its_choices_and_freezes_the_rest(
    server: LiveServer,
) -> None:
    greedy = Greedy()
    system = compose("ours", greedy, Scheduling(prefill_tokens=32, max_running=2))
    assert (system.name, system.lossless) == ("ours", False)
    makers = engine_makers(server, {"ours": system}, DEFAULT_CLASSES, server.settings)
    engine = makers["ours"](requests(5))
    widest = Widest()
    serve_observed(engine, system, [widest])
    assert widest.running == 2
    assert greedy.asked > 0
    assert engine.counters["verified"] == engine.counters["request_iterations"]  # roots alone
    plain = compose("plain", registry.make("chain(2)"), Scheduling())
    assert type(plain).select is Controller.select and type(plain).extend is Controller.extend


def test_controllers_run_under_the_servers_settings_beside_systems(server: LiveServer) -> None:
    controllers = named(["vllm-spec(4)", "sarathi", "chain(2)"])
    found = compare(
        server,
        lambda generator: requests(4, int(generator.integers(5, 40))),
        controllers,
        seeds=2,
        seconds=30.0,
    )
    assert found.seeds == (1000, 1001)
    by_name = {name: runs[0].settings for name, runs in found.runs.items()}
    assert by_name["chain(2)"] == engine_settings(server.engine([]))
    assert by_name["vllm-spec(4)"]["prefill_tokens"] == WHOLE_PROMPTS
    tokens = [{run.metrics.output_tokens for run in runs} for runs in found.runs.values()]
    assert tokens[0] == tokens[1] == tokens[2]  # lossless, on the same arrivals


def test_without_engines_of_its_own_a_system_is_served_as_any_other(server: LiveServer) -> None:
    """Negative control: the settings come from the engine makers, not from the runner."""
    found = runner.run(
        named(["vllm"]), [runner.SeededRequests(1, lambda: requests(1))], lambda r: server.engine(r)
    )
    assert found.runs["vllm"][0].settings["prefill_tokens"] == server.settings.prefill_tokens


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("vllm-spec(0)", "chain: k is 0"),
        ("vllm-spec(4, 5)", "parameters do not fit"),
        ("vllm-spec(x)", "the parameters cannot be read"),
        ("sarathi(chunk_tokens=0)", "prefill_tokens is 0; expected a whole number of at least 1"),
        ("vllm-priority(2.5)", "max_running is 2.5; expected a whole number"),
        ("vlm", "no controller of that name"),
    ],
)
def test_bad_names_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="--policy") as caught:
        named([spec])
    assert says in str(caught.value)


def test_the_list_has_both() -> None:
    listed = [line.split()[0] for line in list_controllers().splitlines()]
    wrappers = {f"{name}:…" for name in registry.WRAPPERS}
    assert {"name", *registry.ENTRIES, *wrappers} == set(listed)


def test_a_wrapped_system_is_served_by_its_own_settings(server: LiveServer) -> None:
    controllers = named(["tiered:sarathi(16)", "tiered:chain(2)"])
    makers = engine_makers(server, controllers, DEFAULT_CLASSES, server.settings)
    chunks = {name: make([]).settings.prefill_tokens for name, make in makers.items()}
    assert chunks == {
        "tiered:sarathi(16)": 16,
        "tiered:chain(2)": server.settings.prefill_tokens,
    }


def test_a_system_needs_numpy_only() -> None:
    code = (
        "import sys, policies.registry as r; r.make('vllm-spec(4)')\n"
        "print(*{'torch', 'numba', 'scipy', 'gymnasium'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="."
    )
    assert done.stdout.strip() == ""


def test_a_cap_beyond_the_slots_is_all_slots(server: LiveServer) -> None:
    _, engine = engine_of(server, "vllm-priority(99)", requests(1))
    assert engine.max_running == server.settings.limits.slots
    assert replace(server.settings).order == "fcfs"  # the server's own settings are untouched


def test_a_system_that_reads_whole_prompts_is_served_on_replay() -> None:
    """Its budget of prompt tokens is endless, but a chunk is never longer than a text."""
    server = tiny_recording.replay_server()
    makers = engine_makers(server, named(["vllm"]), DEFAULT_CLASSES, server.settings)
    engine = makers["vllm"](list(tiny_recording.asked(4)))
    assert engine.settings.prefill_tokens == WHOLE_PROMPTS
    assert len(engine.serve(registry.make("vllm"))) == 4
