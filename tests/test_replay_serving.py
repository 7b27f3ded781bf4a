"""Serving on replay: drawn requests, memory pressure, withdrawal, every controller, bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile.published import open_profile
from engine.protocol import Controller
from engine.replay import server as server_module
from engine.replay.drawing import RecordedDrawing
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording import NEVER, Recording, join, select_texts
from engine.replay.recording_folder import write_manifest, write_shard
from engine.replay.server import ReplayConfig, ReplayServer
from engine.request import Request, Status
from engine.sampling.params import SamplingParams
from engine.workload import Regime, TraceUse, WorkloadConfig
from engine.workload.capacity_mix import Asked
from engine.workload.episode import draw_arrivals
from policies import registry
from policies.best_fixed import awaiting
from tests.random_plans import RandomMasks, RandomPlans
from tests.tiny_recording import (
    CAPACITY,
    SLOTS,
    TOKENS,
    asked,
    known_profile,
    recorded,
    replay_server,
)

WORK = WorkloadConfig(name="tiny", duration_s=3.0, load=1.2, max_tokens=24)


def controllers(rng: np.random.Generator) -> list[Controller]:
    """Every controller with a name, and those that decide at random."""
    named = [registry.make(name) for name in registry.names()]
    for controller in awaiting(named):
        controller.settle(3, 2, 6)
    return [*named, RandomPlans(rng), RandomPlans(rng, margin=0.5), RandomMasks(rng)]


def outputs_as_recorded(requests: list[Request]) -> bool:
    """Whether every request said the beginning of its text's answer."""
    _, recording = recorded()
    first = recording.first_token[:-1] + recording.prompt_tokens
    return all(
        isinstance(r, RecordedRequest)
        and r.output == recording.tokens[first[r.text] : first[r.text] + len(r.output)].tolist()
        for r in requests
    )


def test_two_hundred_short_episodes_under_every_controller() -> None:
    rng = np.random.default_rng(11)
    pressed = replay_server(capacity_tokens=104, page_size=8, kv_pool_tokens=104)
    work = replace(WORK, max_tokens=14, load=3.0)
    servers = [(server, RecordedDrawing(server, work)) for server in (replay_server(), pressed)]
    deciders, preempted = controllers(rng), 0
    for episode in range(200):
        server, draw = servers[episode % 2]
        controller = deciders[episode % len(deciders)]
        requests = draw(np.random.default_rng(episode))[:5]
        engine = server.engine(requests)
        records = engine.serve(controller)
        engine.backend.pool.check()
        assert len(records) == len(requests)
        assert all(record.status is Status.FINISHED for record in records)
        lossy = isinstance(controller, RandomPlans) and controller.margin < 1
        if controller.lossless and not lossy:
            assert outputs_as_recorded(requests)
        preempted += engine.counters["preempted"]
    assert preempted > 5


def test_memory_pressure_costs_time_and_no_text() -> None:
    tree = registry.make("eagle3(4,4,16)")
    spacious, pressed = asked(8), asked(8)
    ample = replay_server(page_size=8).engine(list(spacious))
    tight = replay_server(capacity_tokens=128, page_size=8, kv_pool_tokens=128).engine(
        list(pressed)
    )
    ample.serve(tree)
    records = tight.serve(tree)
    assert [r.output for r in pressed] == [r.output for r in spacious]
    assert ample.counters["preempted"] == 0 < tight.counters["preempted"]
    assert any(record.preempted for record in records)
    assert tight.clock_s > ample.clock_s
    assert tight.counters["prefilled"] > ample.counters["prefilled"]  # what was lost is read anew


def test_who_withdraws_is_gone_and_the_others_say_what_they_would_have_said() -> None:
    requests = asked(6)
    requests[1].cancel_at_s = 0.2
    engine = replay_server().engine(list(requests))
    view = engine.next_decision()
    assert view is not None and engine.cancel(2)
    status = {record.id: record.status for record in engine.serve(registry.make("chain"))}
    assert [i for i in range(6) if status[i] is Status.CANCELLED] == [1, 2]
    assert outputs_as_recorded(list(requests)) and len(requests[0].output) == TOKENS


def test_arrivals_are_the_workloads_own_and_texts_of_their_class() -> None:
    server = replay_server()
    draw = RecordedDrawing(server, WORK)
    requests = draw(np.random.default_rng(3))
    arrivals = draw_arrivals(WORK, draw.classes, draw.capacity_rps, np.random.default_rng(3))
    assert [r.arrival_s for r in requests] == arrivals.arrival_s.tolist()
    assert [r.slo_class for r in requests] == arrivals.slo_class.tolist()
    _, recording = recorded()
    for request in requests:
        assert isinstance(request, RecordedRequest)
        assert recording.text_class[request.text] == request.slo_class
        assert 12 <= request.max_tokens <= 24
    assert requests == draw(np.random.default_rng(3)) != draw(np.random.default_rng(4))


def test_a_request_ends_where_the_target_ended() -> None:
    server, (_, recording) = replay_server(), recorded()
    ended = np.full(recording.texts, NEVER, np.int32)
    first = recording.first_token[:-1] + recording.prompt_tokens
    for i in range(recording.texts):  # the first token that was not said before
        output = recording.tokens[first[i] : first[i] + TOKENS].tolist()
        ended[i] = next(n for n in range(6, TOKENS) if output[n - 1] not in output[: n - 1])
    server.recording = recording._replace(ended=ended)
    requests = RecordedDrawing(server, WORK)(np.random.default_rng(0))
    server.engine(requests).serve(registry.make("chain"))
    for request in requests:
        assert isinstance(request, RecordedRequest)
        assert len(request.output) == min(ended[request.text], request.max_tokens)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompt_tokens": 3}, "prompt of at most 3 tokens"),
        ({"mix": {"coding": 1.0}, "max_tokens": 500}, ""),
    ],
)
def test_workloads_that_do_not_fit(changes: dict, told: str) -> None:
    config = replace(WORK, **changes)
    if told:
        with pytest.raises(UserError, match=told):
            RecordedDrawing(replay_server(), config)
    else:  # outputs end where the recording ends
        requests = RecordedDrawing(replay_server(), config)(np.random.default_rng(0))
        assert {r.max_tokens for r in requests} == {TOKENS}


# -- capacity is that of what will be asked for ----------------------------------------------------


def what_is_asked(draw: RecordedDrawing, episodes: int = 60) -> list[Asked]:
    """What some episodes' requests are of each class, counted."""
    drawn = [r for seed in range(episodes) for r in draw(np.random.default_rng(seed))]
    assert len(drawn) > 200
    by_class = [[r for r in drawn if r.slo_class == c] for c in range(len(draw.classes.names))]
    return [
        Asked(
            name,
            float(len(own)),
            float(np.mean([len(r.prompt) for r in own])),
            float(np.mean([r.max_tokens for r in own])),
        )
        for name, own in zip(draw.classes.names, by_class, strict=True)
        if own
    ]


LONG_TEXTS = Regime(1.5, 3.0, {"coding": 1.0})
MIXES: dict[str, dict[str, Any]] = {
    "alike": {"max_tokens": 24},
    "mixed": {"mix": {"coding": 9.0, "chat": 1.0}},
    "regimes": {"load": None, "regimes": (LONG_TEXTS, Regime(1.5, 1.0, {"chat": 1.0}))},
    "clipped": {"max_tokens": 60},  # texts are recorded for 40 tokens
}


@pytest.mark.parametrize("name", MIXES)
def test_capacity_is_that_of_what_is_asked_for(name: str) -> None:
    work = replace(WORK, **MIXES[name])
    server = with_long_coding_prompts()
    draw = RecordedDrawing(server, work)
    assert draw.capacity_rps == pytest.approx(server.capacity_of(what_is_asked(draw)), rel=0.03)


def with_long_coding_prompts() -> ReplayServer:
    """A server that counts coding's prompts as far longer, so that the mix matters."""
    server, (manifest, recording) = replay_server(), recorded()
    server.recording = lengthened(recording, manifest.classes.index("coding"))
    return server


def lengthened(recording: Recording, of_class: int, by: int = 30) -> Recording:
    """The recording with `by` tokens more before every prompt of a class."""
    texts = [select_texts(recording, np.array([i])) for i in range(recording.texts)]
    return join(
        [
            text._replace(
                tokens=np.concatenate((np.zeros(by, np.int32), text.tokens)),
                first_token=np.array([0, len(text.tokens) + by]),
                prompt_tokens=text.prompt_tokens + np.int32(by),
            )
            if text.text_class[0] == of_class
            else text
            for text in texts
        ]
    )


# -- a trace's lengths -----------------------------------------------------------------------------


def traced(tmp_path: Path, outputs: list[int], **changes: object) -> WorkloadConfig:
    """A workload whose trace asks for so many tokens, a request every second."""
    rows = [f"{i},20,{n},coding" for i, n in enumerate(outputs)]
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,class\n" + "\n".join(rows) + "\n")
    config = {"name": "traced", "duration_s": 999.0, "trace": TraceUse(str(path)), **changes}
    return WorkloadConfig(**config)  # type: ignore[arg-type]


def with_lengths(lengths: list[int]) -> ReplayServer:
    """A server whose coding texts for training are recorded so far; they end after 5 tokens."""
    server, (manifest, recording) = replay_server(), recorded()
    coding = (recording.text_class == manifest.classes.index("coding")) & ~recording.held_out
    left = dict(zip(np.flatnonzero(coding).tolist(), lengths, strict=True))
    parts = []
    for i in range(recording.texts):
        text = select_texts(recording, np.array([i]))
        if i in left:
            end = int(text.prompt_tokens[0]) + left[i]
            text = text._replace(
                tokens=text.tokens[:end],
                first_token=np.array([0, end]),
                ended=np.array([5], np.int32),
            )
        parts.append(text)
    server.recording = join(parts)
    return server


def test_a_traces_request_takes_a_text_that_is_recorded_so_far(tmp_path: Path) -> None:
    server = with_lengths([12, 30])
    work = traced(tmp_path, [4, 20, 11, 28, 3, 30] * 20)
    episode = RecordedDrawing(server, work).episode(np.random.default_rng(0))
    short = 0
    for request in episode.requests:
        assert isinstance(request, RecordedRequest)
        recorded_tokens = np.diff(server.recording.first_token)[request.text] - len(request.prompt)
        assert request.max_tokens <= recorded_tokens
        assert request.stop_ids == frozenset()
        assert request.past_end == (request.max_tokens > 5)
        short += recorded_tokens == 12
    assert [r.max_tokens for r in episode.requests] == [4, 20, 11, 28, 3, 30] * 20
    assert episode.clipped == 0 and short > 20


def test_where_no_text_is_long_enough_the_longest_is_taken_and_counted(tmp_path: Path) -> None:
    server = with_lengths([12, 30])
    draw = RecordedDrawing(server, traced(tmp_path, [31, 80, 10]))
    episode = draw.episode(np.random.default_rng(0))
    assert [r.max_tokens for r in episode.requests] == [30, 30, 10]
    assert episode.clipped == 2


def test_max_tokens_bounds_a_traces_lengths_as_on_live(tmp_path: Path) -> None:
    server, work = with_lengths([30, 30]), traced(tmp_path, [25, 8, 80], max_tokens=9)
    draw = RecordedDrawing(server, work)
    episode = draw.episode(np.random.default_rng(0))
    assert [r.max_tokens for r in episode.requests] == [9, 8, 9]
    assert episode.clipped == 2
    mean_prompt = np.mean([len(text.prompt) for text in draw._texts[0]])
    (asked,) = draw.asked
    assert asked == Asked(asked.name, 1.0, float(mean_prompt), 26 / 3)
    assert draw.capacity_rps == server.capacity_of([asked])


def test_a_request_that_goes_on_behind_the_end_is_served(tmp_path: Path) -> None:
    server, (_, recording) = replay_server(), recorded()
    ended = np.full(recording.texts, 3, np.int32)
    server.recording = recording._replace(ended=ended)
    requests = RecordedDrawing(server, traced(tmp_path, [20, 2, 20]))(np.random.default_rng(0))
    server.engine(requests).serve(registry.make("chain"))
    assert [len(r.output) for r in requests] == [20, 2, 20]
    assert outputs_as_recorded(requests)


def test_a_class_that_was_not_recorded() -> None:
    server = replay_server()
    server.manifest = replace(server.manifest, classes=("coding", "chat", "maths"))
    with pytest.raises(UserError, match="no training text of the class 'summarization'"):
        RecordedDrawing(server, WORK)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sampling": SamplingParams(temperature=0.7)}, "greedy answers"),
        ({"sampling": SamplingParams(repetition_penalty=1.2)}, "greedy answers"),
        ({"sampling": SamplingParams(logprobs=True)}, "log probabilities"),
        ({"stop_strings": ("end",)}, "stop strings"),
        ({"text": 99}, "text 99; expected one of the 12"),
        ({"max_tokens": TOKENS + 1}, f"wants up to {TOKENS + 1}"),
        ({"prompt": [1, 2]}, "prompt of 2 tokens"),
    ],
)
def test_what_a_recording_cannot_answer_is_refused(changed: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        replay_server().engine([replace(asked(1)[0], **changed)])


def test_an_ordinary_request_is_refused() -> None:
    with pytest.raises(UserError, match="request 4 names no recorded text"):
        replay_server().engine([Request(4, 0, [1, 2, 3], 5, 0.0)])


def test_greedy_filters_change_nothing_and_are_served() -> None:
    request = replace(asked(1)[0], sampling=SamplingParams(top_k=5, top_p=0.5))
    replay_server().engine([request]).serve(registry.make("chain"))
    assert outputs_as_recorded([request])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> ReplayConfig:
    """The tiny recording and its profile, on disk."""
    folder = tmp_path_factory.mktemp("recording")
    manifest, recording = recorded()
    write_manifest(folder, manifest)
    write_shard(folder, recording, 0)
    profile = known_profile(manifest).save(folder / "profile.json")
    return ReplayConfig(folder, profile, slots=SLOTS, capacity_tokens=CAPACITY)


def test_a_server_is_loaded_from_disk(stored: ReplayConfig) -> None:
    loaded, requests = ReplayServer.load(stored), asked(4)
    assert loaded.name == "tiny" and loaded.profile == replay_server().profile
    records = loaded.engine(list(requests)).serve(registry.make("eagle3"))
    assert records == replay_server().engine(list(asked(4))).serve(registry.make("eagle3"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "llama"}, "--model llama: the recording .* is of tiny"),
        ({"drafter": "prompt-lookup"}, "--drafter prompt-lookup: the recording .* is of eagle3"),
        ({"recording": Path("nowhere")}, "nowhere holds no recording"),
        ({"profile": Path("nowhere.json")}, "nowhere.json: no hardware profile"),
        ({"decision_s": float("nan")}, "decision_s is nan"),
        ({"kv_pool_tokens": 10}, "give at least"),
        ({"profile": "llama-7b-h100"}, "no hardware profile is named 'llama-7b-h100'"),
    ],
)
def test_a_server_that_cannot_be_loaded(stored: ReplayConfig, changed: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        ReplayServer.load(replace(stored, **changed))


def test_a_published_profile_is_named(stored: ReplayConfig) -> None:
    loaded = ReplayServer.load(replace(stored, profile=Path("llama-8b-h100")))
    assert loaded.profile == open_profile("llama-8b-h100")
    assert "times of llama-3.1-8b-instruct" in loaded.describe()
    records = loaded.engine(list(asked(4))).serve(registry.make("eagle3"))
    assert [record.status for record in records] == [Status.FINISHED] * 4


def test_a_checkout_without_data_says_what_to_do(
    stored: ReplayConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "DEFAULT_RECORDING", tmp_path / "none")
    monkeypatch.setattr(server_module, "DEFAULT_PROFILE", tmp_path / "none.json")
    with pytest.raises(UserError, match=r"no recording was named .* `python record\.py --out"):
        ReplayServer.load(replace(stored, recording=None))
    with pytest.raises(UserError, match=r"no hardware profile was named .* `python -m engine"):
        ReplayServer.load(replace(stored, profile=None))
