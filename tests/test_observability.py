"""Observers told by a real loop: what they count agrees with records and outcomes, and no text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.loop import Engine
from engine.observability.acceptance import AcceptanceByRequest
from engine.observability.exposition import Counter, Gauge, Histogram, exposition
from engine.observability.metrics import ServingMetrics
from engine.observability.observing import Observer, serve_observed
from engine.observability.outputs import ObserverPaths, observers_from
from engine.observability.step_trace import LANES, StepTrace
from engine.observability.tree_log import TreeChoice, TreeLog, tree_choice
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.request import Request, RequestRecord
from engine.serving import LiveServer
from engine.tiny import tiny_server

LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)
SENTINEL = 987654321


class Tree(Controller):
    """The same tree for all; every third iteration is an ordinary one."""

    iteration = 0

    def reset(self, limits: Limits) -> None:
        self.iteration = 0

    def plan(self, view: View) -> Plan:
        self.iteration += 1
        depth = 0 if self.iteration % 3 == 0 else 3
        return uniform_plan(view.limits, depth, 2, 5)


class Recorder:
    """Observer that keeps what it is told."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.views: list[View] = []
        self.records: list[RequestRecord] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        self.views.append(view)
        self.outcomes.append(outcome)

    def on_record(self, record: RequestRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        """Nothing to write."""


class Spoiler:
    """Puts a number that cannot be missed wherever the engine holds tokens."""

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        engine.trees.token[:] = SENTINEL
        engine.trees.new_tokens[:] = SENTINEL
        engine.slots.text[:] = SENTINEL
        engine.slots.last_token[:] = SENTINEL

    def on_record(self, record: RequestRecord) -> None:
        """Nothing to spoil."""

    def close(self) -> None:
        """Nothing to write."""


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 10, limits=LIMITS, capacity_tokens=64)
    torch.set_num_threads(threads)


def requests(count: int = 5, max_tokens: int = 12) -> list[Request]:
    """More requests than slots, one of which ends with its first token."""
    made = [Request(i, i % 3, [1, 2, 3 + i], max_tokens, 0.0) for i in range(count)]
    made[-1].max_tokens = 1
    return made


def samples(text: str) -> dict[str, float]:
    """Value by series, as a scraper reads it."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            found[series] = float(value)
    return found


def summed(found: dict[str, float], name: str) -> float:
    """A family's sum over its series."""
    return sum(v for series, v in found.items() if series.split("{")[0] == name)


# -- the drive -----------------------------------------------------------------------------------


def test_observers_change_nothing_and_see_everything(server: LiveServer) -> None:
    plain, seen = requests(), requests()
    server.engine(plain).serve(Tree())
    recorder = Recorder()
    engine = server.engine(seen)
    records = serve_observed(engine, Tree(), [recorder])
    assert [r.output for r in seen] == [r.output for r in plain]
    assert len(recorder.outcomes) == engine.counters["iterations"]
    assert sorted(r.id for r in recorder.records) == [0, 1, 2, 3, 4]  # each exactly once
    assert {r.id for r in records} == {r.id for r in recorder.records}


def test_requests_that_were_cut_are_told_too(server: LiveServer) -> None:
    recorder = Recorder()
    serve_observed(server.engine(requests()), Tree(), [recorder], max_iterations=1)
    assert sorted(r.id for r in recorder.records) == [0, 1, 2, 3, 4]
    assert len(recorder.outcomes) == 1


# -- exposition ----------------------------------------------------------------------------------


def test_the_text_format_by_hand() -> None:
    counter = Counter("a_total", "Things.", ("kind",))
    counter.add(2, 'q"u\\o\nte')
    counter.add(0.5, 'q"u\\o\nte')
    gauge = Gauge("b", "Now.")
    gauge.set(float("inf"))
    histogram = Histogram("c_seconds", "Times.", (0.5, 1.0))
    for value in (0.5, 0.7, 3.0, float("nan")):
        histogram.observe(value)
    assert exposition([counter, gauge, histogram], {"model_name": "m"}).splitlines() == [
        "# HELP a_total Things.",
        "# TYPE a_total counter",
        'a_total{model_name="m",kind="q\\"u\\\\o\\nte"} 2.5',
        "# HELP b Now.",
        "# TYPE b gauge",
        'b{model_name="m"} +Inf',
        "# HELP c_seconds Times.",
        "# TYPE c_seconds histogram",
        'c_seconds_bucket{model_name="m",le="0.5"} 1',
        'c_seconds_bucket{model_name="m",le="1"} 2',
        'c_seconds_bucket{model_name="m",le="+Inf"} 3',
        'c_seconds_sum{model_name="m"} 4.2',
        'c_seconds_count{model_name="m"} 3',
    ]
    assert exposition([gauge]).splitlines()[-1] == "b +Inf"


# -- metrics -------------------------------------------------------------------------------------


def test_metrics_agree_with_records_and_outcomes(server: LiveServer) -> None:
    metrics, recorder = ServingMetrics(), Recorder()
    engine = server.engine(requests())
    records = serve_observed(engine, Tree(), [metrics, recorder])
    found = samples(metrics.text())
    assert summed(found, "vllm:generation_tokens_total") == sum(r.output_tokens for r in records)
    assert summed(found, "vllm:prompt_tokens_total") == sum(r.prompt_tokens for r in records)
    drafts = sum(int((o.verified > 1).sum()) for o in recorder.outcomes)
    assert 0 < drafts < sum(int(o.ran.sum()) for o in recorder.outcomes)
    assert summed(found, "vllm:spec_decode_num_drafts_total") == drafts
    nodes = sum(int(np.maximum(o.verified - 1, 0).sum()) for o in recorder.outcomes)
    assert summed(found, "vllm:spec_decode_num_draft_tokens_total") == nodes
    accepted = sum(int(o.accepted.sum()) for o in recorder.outcomes)
    assert accepted > 0
    assert summed(found, "vllm:spec_decode_num_accepted_tokens_total") == accepted
    assert summed(found, "vllm:spec_decode_num_accepted_tokens_per_pos_total") == accepted
    assert summed(found, "draftgym:slo_valid_tokens_total") == sum(r.valid_tokens for r in records)
    assert summed(found, "draftgym:iterations_total") == engine.counters["iterations"]
    spent = sum(o.iteration_s for o in recorder.outcomes)
    assert summed(found, "draftgym:phase_seconds_total") == pytest.approx(spent)
    assert summed(found, "vllm:time_to_first_token_seconds_count") == 5
    assert summed(found, "vllm:e2e_request_latency_seconds_count") == 5
    # The one-token answer has no time per token.
    assert summed(found, "vllm:request_time_per_output_token_seconds_count") == 4


def test_metrics_are_by_class(server: LiveServer) -> None:
    metrics = ServingMetrics(constant={"model_name": "tiny"})
    records = serve_observed(server.engine(requests()), Tree(), [metrics])
    found = samples(metrics.text())
    for index, name in enumerate(("coding", "chat", "summarization")):
        labels = f'{{model_name="tiny",slo_class="{name}"}}'
        mine = [r for r in records if r.slo_class == index]
        emitted = found[f"vllm:generation_tokens_total{labels}"]
        assert emitted == sum(r.output_tokens for r in mine)
        assert found[f"draftgym:slo_requests_total{labels}"] == len(mine)
        assert found[f"draftgym:slo_attained_total{labels}"] == sum(r.attained for r in mine)


def test_gaps_between_emissions_add_up_to_the_decode_time(server: LiveServer) -> None:
    metrics = ServingMetrics()
    records = serve_observed(server.engine(requests()), Tree(), [metrics])
    found = samples(metrics.text())
    decode_s = sum(r.finish_s - r.first_token_s for r in records)
    # A finished request's last gap ends with the commit, its record a moment before that.
    assert summed(found, "vllm:inter_token_latency_seconds_sum") == pytest.approx(decode_s, rel=0.1)
    iterations = sum(r.iterations for r in records)
    assert summed(found, "vllm:inter_token_latency_seconds_count") == iterations


def test_load_gauges_follow_the_engine(server: LiveServer) -> None:
    metrics = ServingMetrics()
    engine = server.engine(requests())
    serve_observed(engine, Tree(), [metrics], max_iterations=1)
    found = samples(metrics.text())
    assert summed(found, "vllm:num_requests_running") == 3
    assert summed(found, "vllm:num_requests_waiting") == 2
    # All three pages of 64 rows were owned when the plan was made.
    assert found["vllm:kv_cache_usage_perc"] == 1.0
    assert 0.5 < found["draftgym:kv_fragmentation"] < 1.0
    assert summed(found, "draftgym:overload_actions") == 0


def test_every_name_is_declared_once_and_legal() -> None:
    names = [family.name for family in ServingMetrics().families]
    assert len(names) == len(set(names))
    for family in ServingMetrics().families:
        assert re.fullmatch(r"(vllm|sglang|draftgym):[a-z0-9_]+", family.name)
        assert (family.kind == "counter") == family.name.endswith("_total")


# -- acceptance ----------------------------------------------------------------------------------


def test_acceptance_by_request(server: LiveServer, tmp_path: Path) -> None:
    observer, recorder = AcceptanceByRequest(tmp_path / "a.jsonl"), Recorder()
    records = serve_observed(server.engine(requests()), Tree(), [observer, recorder])
    by_request = {one.request: one for one in observer.ended}
    assert set(by_request) == {r.id for r in records if r.iterations}
    everyone = np.sum([one.accepted for one in observer.ended], axis=0)
    assert (everyone == sum(o.accepted.sum(0) for o in recorder.outcomes)).all()
    offered = np.sum([one.proposed for one in observer.ended], axis=0)
    assert (offered == sum(o.proposed.sum(0) for o in recorder.outcomes)).all()
    for one in observer.ended:
        lengths = enumerate(one.spec_correct_drafts_histogram)
        assert sum(n * count for n, count in lengths) == one.spec_num_correct_drafts
        assert one.proposed[0] == one.spec_verify_ct
        # Without a rejected ancestor an acceptance is monotone in depth.
        assert sorted(one.accepted, reverse=True) == one.accepted
    observer.close()
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["request"] for row in rows] == [one.request for one in observer.ended]
    assert rows[0]["spec_accept_length"] == observer.ended[0].spec_accept_length >= 1


# -- tree log ------------------------------------------------------------------------------------


def test_the_tree_log_tells_the_trees(server: LiveServer, tmp_path: Path) -> None:
    log, recorder = TreeLog(tmp_path / "t.jsonl"), Recorder()
    serve_observed(server.engine(requests()), Tree(), [log, recorder])
    log.close()
    header, *lines = [json.loads(x) for x in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert header["format"] == "draftgym.tree-log" and header["version"] == 1
    assert len(lines) == sum(int(o.ran.sum()) for o in recorder.outcomes)
    assert sum(x["drafted"] for x in lines) == sum(int(o.drafted.sum()) for o in recorder.outcomes)
    nodes = sum(int(np.maximum(o.verified - 1, 0).sum()) for o in recorder.outcomes)
    assert sum(sum(x["kept_by_depth"]) for x in lines) == nodes
    ordinary = [x for x in lines if x["iteration"] % 3 == 0]
    assert ordinary and not any(x["drafted"] or x["kept_by_depth"] for x in ordinary)
    assert {x["drafted_width"] for x in lines if x["drafted"]} == {2}


def test_the_tree_log_holds_no_text(server: LiveServer, tmp_path: Path) -> None:
    log, acceptance = TreeLog(tmp_path / "t.jsonl"), AcceptanceByRequest(tmp_path / "a.jsonl")
    trace, metrics = StepTrace(tmp_path / "s.json"), ServingMetrics(tmp_path / "m.prom")
    observers: list[Observer] = [Spoiler(), log, acceptance, trace, metrics]
    engine = server.engine(requests())
    # One iteration: what is spoilt must not be fed to the networks.
    serve_observed(engine, Tree(), observers, max_iterations=1)
    assert (engine.trees.token == SENTINEL).all()  # where a careless line would have found it
    for observer in observers[1:]:
        observer.close()
    written = [path.read_text() for path in tmp_path.iterdir()]
    assert len(written) == 4 and all(written)
    assert not any(str(SENTINEL) in text for text in written)


def test_a_line_of_the_tree_log_has_the_allowed_fields_only(server: LiveServer) -> None:
    allowed = {
        *("iteration", "start_s", "request", "slo_class", "context_tokens", "tokens_out"),
        *("slack_tokens", "draft_confidence", "drafted_depth", "drafted_width", "drafted"),
        *("kept_by_depth", "kept_probability", "accepted_length", "let_through", "finished"),
    }
    assert set(TreeChoice._fields) == allowed
    engine = server.engine(requests())
    view = engine.next_decision()
    assert view is not None
    outcome = engine.run_iteration(view, Tree())
    choice = tree_choice(engine, view, outcome, 0)
    assert sum(choice.kept_by_depth) + 1 == outcome.verified[0]
    assert 0 < choice.kept_probability < choice.drafted


# -- step trace ----------------------------------------------------------------------------------


def test_the_trace_covers_the_clock(server: LiveServer, tmp_path: Path) -> None:
    trace, recorder = StepTrace(tmp_path / "trace.json"), Recorder()
    engine = server.engine(requests())
    serve_observed(engine, Tree(), [trace, recorder])
    assert not (tmp_path / "trace.json").exists()  # nothing half-written under the name
    trace.close()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tuple(lanes.values()) == LANES
    spans = sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    for name in LANES:
        mine = sum(e["dur"] for e in spans if lanes[e["tid"]] == name) / 1e6
        assert mine == pytest.approx(sum(getattr(o, f"{name}_s") for o in recorder.outcomes))
    # All requests were there from the start, so the spans fill the clock without overlap.
    for before, after in pairwise(spans):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=0.01)
    assert {e["ph"] for e in events} == {"M", "X", "C", "b", "e"}
    begun = [(e["id"], e["name"]) for e in events if e["ph"] == "b"]
    assert sorted(begun) == sorted((e["id"], e["name"]) for e in events if e["ph"] == "e")
    assert len(begun) == 5 * 3


def test_every_episode_is_a_process_of_the_trace(server: LiveServer, tmp_path: Path) -> None:
    trace = StepTrace(tmp_path / "trace.json")
    for _ in range(2):
        serve_observed(server.engine(requests()), Tree(), [trace], max_iterations=2)
    trace.close()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["pid"] for e in events if e["ph"] == "X"} == {1, 2}


# -- files ---------------------------------------------------------------------------------------


def test_observers_come_from_paths(server: LiveServer, tmp_path: Path) -> None:
    paths = ObserverPaths(
        trace_out=tmp_path / "new" / "trace.json",
        metrics_out=tmp_path / "m.prom",
        tree_log=tmp_path / "t.jsonl",
        acceptance_out=tmp_path / "a.jsonl",
    )
    with observers_from(paths, "tiny") as observers:
        serve_observed(server.engine(requests()), Tree(), observers)
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == [
        "a.jsonl",
        "m.prom",
        "t.jsonl",
        "trace.json",
    ]
    assert 'model_name="tiny"' in (tmp_path / "m.prom").read_text()
    assert list(observers_from(ObserverPaths())) == []


def test_files_are_written_when_the_run_breaks(server: LiveServer, tmp_path: Path) -> None:
    paths = ObserverPaths(trace_out=tmp_path / "trace.json", metrics_out=tmp_path / "m.prom")
    with pytest.raises(RuntimeError, match="broken"), observers_from(paths) as observers:
        serve_observed(server.engine(requests()), Tree(), observers, max_iterations=1)
        raise RuntimeError("broken")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert summed(samples((tmp_path / "m.prom").read_text()), "draftgym:iterations_total") == 1


@pytest.mark.parametrize("kind", ["trace_out", "tree_log"])
def test_a_file_that_cannot_be_written_is_told_at_once(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        observers_from(ObserverPaths(**{kind: tmp_path / "file" / "x.json"}))


def test_metrics_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        ServingMetrics(tmp_path / "file" / "m.prom").close()
