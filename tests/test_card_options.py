"""Device and attention reach the server that is loaded; and a server gives its meter back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.command import BenchmarkConfig, new_bench
from benchmarks.decoding import at_most
from benchmarks.fresh_clone import Clones
from engine import serving
from engine.errors import UserError
from engine.gpu_meter import GpuMeter
from engine.nvml import open_card
from engine.protocol import Bools, Candidates, Controller, Limits, Plan, View
from engine.serving import LiveConfig, LiveServer
from engine.tiny import tiny_decoder, tiny_server
from envs.live import make_live
from eval.versions import PACKAGES, versions
from policies.registry import make
from tests.nvml_double import RecordedNvml, Row
from train import comparison, evaluation
from train.config import Serving, check_serving
from train.evaluate_config import EvaluateConfig


class Asked(Exception):
    """Carries what was to be loaded."""

    def __init__(self, config: LiveConfig) -> None:
        self.config = config


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded."""

    def load(config: LiveConfig) -> LiveServer:
        raise Asked(config)

    monkeypatch.setattr(LiveServer, "load", load)


@pytest.fixture
def metered() -> tuple[LiveServer, RecordedNvml]:
    """A tiny server whose energy a thread reads."""
    server = tiny_server(limits=Limits(slots=1), capacity_tokens=128)
    double = RecordedNvml([Row(0.0)], clock=lambda: 1.0)
    card = open_card(0, double)
    assert card is not None
    server.power = GpuMeter(card)
    server.power.start()
    return server, double


@pytest.mark.parametrize(
    ("device", "attention"), [("auto", "auto"), ("cpu", "interpreter"), ("cuda", "flashinfer")]
)
def test_options_say_where_and_how_networks_compute(
    asking: None, device: Any, attention: Any
) -> None:
    with pytest.raises(Asked) as asked:
        evaluation.load_server(Serving("live", device=device, attention=attention))
    assert (asked.value.config.device, asked.value.config.attention) == (device, attention)
    env = make_live(model="some", device=device, attention=attention)
    with pytest.raises(Asked) as asked:
        env.reset(seed=0)
    assert (asked.value.config.device, asked.value.config.attention) == (device, attention)
    with pytest.raises(Asked) as asked:
        assert new_bench(BenchmarkConfig(device=device)).server
    assert asked.value.config.device == device


@pytest.mark.parametrize("given", [{"device": "cpu"}, {"attention": "plain"}])
def test_replay_refuses_them(given: dict[str, Any]) -> None:
    check_serving(Serving("live", **given))
    (name,) = given
    with pytest.raises(UserError, match=f"--{name} {given[name]}: has no meaning with --backend r"):
        check_serving(Serving(backend="replay", **given))


def test_a_closed_server_reads_no_card(metered: tuple[LiveServer, RecordedNvml]) -> None:
    server, double = metered
    meter = server.power
    assert isinstance(meter, GpuMeter) and double.users == 1
    thread = meter._thread
    assert thread is not None and thread.is_alive()
    for _ in range(2):
        server.close()
        assert double.users == 0 and not thread.is_alive()


def test_a_server_that_does_not_get_warm_gives_its_meter_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    double = RecordedNvml([Row(0.0)], clock=lambda: 1.0)
    card = open_card(0, double)
    assert card is not None
    meter = GpuMeter(card)
    meter.start()

    def stops(server: LiveServer) -> None:
        assert server.power is meter and double.users == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "card_meter", lambda device: meter)
    monkeypatch.setattr(LiveServer, "warm_up", stops)
    with pytest.raises(KeyboardInterrupt):
        tiny_server(limits=Limits(slots=1), capacity_tokens=128)
    assert double.users == 0


def test_without_a_card_closing_changes_nothing() -> None:
    server = tiny_server(limits=Limits(slots=1), capacity_tokens=128)
    assert server.power is None
    server.close()
    assert server.power is None


def test_commands_close_what_they_load(
    metered: tuple[LiveServer, RecordedNvml], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever goes wrong in between."""
    server, double = metered
    monkeypatch.setattr(evaluation, "load_server", lambda serving: server)

    def fails(*_: Any, **__: Any) -> None:
        assert double.users == 1
        raise UserError("enough")

    monkeypatch.setattr(evaluation, "compare", fails)
    config = EvaluateConfig(("chain(2)",), Serving("live", workload="steady"), out=tmp_path)
    with pytest.raises(UserError, match="enough"):
        comparison.evaluate(config, Console(file=io.StringIO()))
    assert double.users == 0


def test_a_bench_closes_the_server_that_was_asked_for(
    metered: tuple[LiveServer, RecordedNvml],
) -> None:
    server, double = metered
    made: list[LiveServer] = []

    def load() -> LiveServer:
        made.append(server)
        return server

    def nothing(*_: object) -> Any:
        raise AssertionError("asks for prompts or a reference")

    bench = Bench(load, nothing, nothing, Clones(Path()))
    bench.close()
    assert not made and double.users == 1
    assert bench.server is server
    bench.close()
    assert double.users == 0


def test_flashinfer_has_pages_to_split_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One page a request everywhere else, and whatever is asked for."""
    monkeypatch.setattr(serving, "PROBE_CONTEXT", 8)
    monkeypatch.setattr(serving, "PROBE_ITERATIONS", 3)
    decoder, limits = tiny_decoder(), Limits(slots=1)

    def made(page_size: int | None = None) -> LiveServer:
        return LiveServer(
            decoder, None, None, limits, 96, "tiny", page_size=page_size, attention="interpreter"
        )

    assert made().page_size is None and made().backend.pool.page_size == 96
    monkeypatch.setattr(serving, "resolve_attention", lambda *_: "flashinfer")
    card = made()
    assert (card.page_size, card.backend.pool.page_size, card.identity.page_size) == (16, 16, 16)
    assert made(page_size=32).backend.pool.page_size == 32


class Selecting(Controller):
    """Answers select and needs a profile."""

    name, needs_profile = "selecting", True

    def plan(self, view: View) -> Plan:
        """Nothing."""
        raise NotImplementedError

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        """What it was given."""
        return cast(Bools, candidates)


def test_a_controller_that_is_held_to_a_batch_keeps_what_it_can_do() -> None:
    held = at_most(Selecting(), 3, 64)
    assert held.name == "selecting" and held.needs_profile
    assert held.select(*cast(Any, (1, 2, 3))) == 3
    assert type(held).extend is Controller.extend  # the engine asks only whoever defines it
    plain = at_most(make("autoregressive"), 3, 64)
    assert type(plain).select is Controller.select and not plain.needs_profile


def test_versions_name_what_a_card_runs_on() -> None:
    assert {"flashinfer-python", "nvidia-ml-py"} <= set(PACKAGES)
    assert set(versions()["packages"]) == set(PACKAGES)
    assert versions()["packages"]["numpy"]
