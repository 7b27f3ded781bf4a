"""Capacity: the best fixed tree's drain rate, by class, kept in files, and a live server's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.loop import EngineSettings
from engine.overload import OverloadRule
from engine.profile.cost_model import Curve, PassCost
from engine.protocol import Limits
from engine.replay import capacity, capacity_live, capacity_store
from engine.replay.capacity_store import SHIPPED
from engine.replay.capacity_sweep import drained, held_slots, saturating, sweep
from engine.replay.capacity_table import CapacityTable
from engine.replay.capacity_trees import GRID, Tree, planned, within
from engine.replay.drawing import RecordedDrawing
from engine.replay.fleet.fleet import Fleet
from engine.replay.recording_folder import write_manifest, write_shard
from engine.replay.server import DEFAULT_PROFILE, DEFAULT_RECORDING, ReplayConfig, ReplayServer
from engine.workload import WorkloadConfig
from engine.workload.capacity_mix import Asked, mean_lengths
from policies import registry
from policies.fixed import FixedTree
from tests.tiny_recording import SLOTS, known_profile, live_server, recorded, replay_server

BY_HAND = CapacityTable(
    (Tree(0, 1, 1), Tree(2, 1, 2)),
    ("coding", "chat"),
    np.array([[0.5, 0.5], [0.5, 0.5]]),
    np.array([[2.0, 4.0], [1.0, 6.0]]),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "capacity"


# -- the table -------------------------------------------------------------------------------------


def test_the_best_tree_is_one_for_the_whole_mix() -> None:
    coding, chat = Asked("coding", 1.0, 2.0, 3.0), Asked("chat", 1.0, 4.0, 5.0)
    # Coding 1 + 3·(2 or 1) s, chat 2 + 5·(4 or 6) s.
    assert BY_HAND.request_s([coding]).tolist() == [7.0, 4.0]
    assert BY_HAND.request_s([chat]).tolist() == [22.0, 32.0]
    assert BY_HAND.rps([coding]) == 1 / 4 and BY_HAND.best([coding]) == (2, 1, 2)
    # Alike: 14.5 or 18 s. A tree for each class would take (4 + 22) / 2 s, and is not one tree.
    assert BY_HAND.rps([coding, chat]) == 1 / 14.5 and BY_HAND.best([coding, chat]) == (0, 1, 1)
    weighted = [coding._replace(share=9.0), chat]
    assert BY_HAND.request_s(weighted) == pytest.approx([(63 + 22) / 10, (36 + 32) / 10])


def test_unknown_classes_count_as_the_mean_and_empty_mixes_are_refused() -> None:
    assert BY_HAND.request_s([Asked("poetry", 1.0, 2.0, 2.0)]).tolist() == [7.0, 8.0]
    for mix in ([], [Asked("chat", 0.0, 1.0, 1.0)], [Asked("chat", 1.0, 0.0, 0.0)]):
        with pytest.raises(UserError, match="expected requests that have a prompt"):
            BY_HAND.rps(mix)
    assert mean_lengths([]) == (0.0, 0.0)
    mix = [Asked("a", 3.0, 10.0, 1.0), Asked("b", 1.0, 30.0, 5.0)]
    assert mean_lengths(mix) == (15.0, 2.0)


def test_every_tree_of_the_grid_has_a_name_and_fits_its_limits() -> None:
    assert len(set(GRID)) == len(GRID) == 20
    for tree in GRID:
        made = registry.make(tree.spec)
        assert isinstance(made, FixedTree)
        assert (made.depth, made.width, made.nodes) == tree
    small = within(Limits(4, max_depth=2, max_width=2, max_nodes=4))
    assert small == (Tree(0, 1, 1), Tree(1, 1, 1), Tree(2, 1, 2), Tree(2, 2, 4))


# -- the sweep -------------------------------------------------------------------------------------


def test_a_sweep_is_the_single_engines_drain_rate() -> None:
    server = replay_server()
    tree, queue = Tree(3, 2, 6), saturating(server, [0, 1, 2])
    ((prompt_s, output_s),) = drained([tree], [queue], server)
    records = server.engine(saturating(server, [0, 1, 2])).serve(registry.make(tree.spec))
    ends = sorted(record.finish_s for record in records)
    span_s = ends[len(ends) - SLOTS - 1] - ends[SLOTS - 1]
    prompt = np.mean([record.prompt_tokens for record in records])
    output = np.mean([record.output_tokens for record in records])
    # The stretch's own requests are some of all, so their mean lengths are nearly those.
    assert prompt_s * prompt + output_s * output == pytest.approx(
        span_s / (len(ends) - 2 * SLOTS), rel=0.02
    )


def test_a_sweep_is_the_same_every_time_and_knows_its_best_tree() -> None:
    first, again = sweep(replay_server()), sweep(replay_server(page_size=8))
    assert first.trees == again.trees == within(replay_server().settings.limits)
    assert (first.prompt_s == again.prompt_s).all() and (first.output_s == again.output_s).all()
    assert first.classes == replay_server().manifest.classes
    assert (first.output_s.max(axis=0) > 1.2 * first.output_s.min(axis=0)).all()


def test_where_drafts_cost_nothing_the_largest_tree_is_best_and_else_it_is_not() -> None:
    free = replay_server()
    flat, nothing = Curve(2**-6, (0.0,), (0.0,)), Curve(0.0, (0.0,), (0.0,))
    free.profile = replace(
        free.profile,
        verify=replace(free.profile.verify, curve=flat),
        draft_first=PassCost(nothing),
        draft_next=PassCost(nothing),
        host=PassCost(nothing),
    )
    mix = free.capacity_table.alike(12.0, 24.0)
    seconds = free.capacity_table.request_s(mix)
    assert free.capacity_table.trees[-1] == (8, 8, 64)
    assert seconds[-1] == seconds.min() < 0.99 * seconds[0]
    priced = replay_server().capacity_table.request_s(mix)
    assert priced[-1] > 1.2 * priced.min()


def test_a_rate_beyond_capacity_queues_and_one_below_does_not() -> None:
    server = replay_server()
    tree = server.capacity_table.best(server.capacity_table.alike(12.0, 30.0))
    fleet = Fleet(server, 2)
    for replica, load in enumerate((0.7, 1.4)):
        work = WorkloadConfig(duration_s=60.0, load=load, max_tokens=40)
        fleet.begin(replica, RecordedDrawing(server, work)(np.random.default_rng(2)))
    fleet.serve(planned([tree, tree], 3, 10**6), 10**6)

    def waited_s(replica: int) -> float:
        records = fleet.records(replica)
        late = records[len(records) // 2 :]
        return float(np.mean([record.admitted_s - record.arrival_s for record in late]))

    assert waited_s(0) < 1.0 < 8.0 < waited_s(1)


def test_memory_bounds_the_slots_and_overload_rules_do_not_count() -> None:
    tight = replay_server(page_size=8, kv_pool_tokens=2 * 104 + 8)
    assert held_slots(replay_server()) == SLOTS and held_slots(tight) == 2
    assert sweep(tight).rps([Asked("chat", 1.0, 12.0, 40.0)]) == pytest.approx(
        sweep(replay_server(slots=2)).rps([Asked("chat", 1.0, 12.0, 40.0)])
    )
    ruled = replay_server()
    ruled.settings = replace(ruled.settings, overload=OverloadRule("reject"), order="edf")
    plain = replay_server()
    assert (sweep(ruled).output_s == sweep(plain).output_s).all()
    assert capacity_store.key_of(ruled) == capacity_store.key_of(plain)


# -- what is kept ----------------------------------------------------------------------------------


def test_a_table_is_swept_once_and_a_damaged_file_is_swept_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replay_server().capacity_table
    (path,) = cache.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(capacity_store, "sweep", None)  # must not be called
        kept = replay_server().capacity_table
    assert (kept.trees, kept.classes) == (table.trees, table.classes)
    assert (kept.output_s == table.output_s).all() and (kept.prompt_s == table.prompt_s).all()
    for damage in ("", "[]", path.read_text().replace("output_s", "outputs")):
        path.write_text(damage)
        assert (replay_server().capacity_table.output_s == table.output_s).all()
        assert json.loads(path.read_text())["trees"] == [list(tree) for tree in table.trees]


def test_a_cache_that_cannot_be_written_costs_a_sweep_and_nothing_else(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("a file where a folder should be")
    assert replay_server().capacity_rps(10, 20) > 0
    assert "could not be kept" in caplog.text


def test_the_key_is_of_all_that_decides_and_of_nothing_else() -> None:
    key = capacity_store.key_of(replay_server())
    assert capacity_store.key_of(replay_server()) == key
    slower = replay_server()
    slower.profile = replace(slower.profile, draft_next=slower.profile.draft_first)
    others = [slower, *(replay_server(**c) for c in ({"slots": 3}, {"decision_s": 0.0}))]
    text = replay_server()
    text.recording = text.recording._replace(ended=text.recording.ended + 7)
    chunked = replay_server()
    chunked.settings = replace(chunked.settings, prefill_tokens=8)
    keys = {capacity_store.key_of(server) for server in [*others, text, chunked]}
    assert len(keys) == 5 and key not in keys
    watts = replay_server()
    watts.profile = replace(watts.profile, measured_at="some other day", context_tokens=60.0)
    assert capacity_store.key_of(watts) == key


def test_the_default_set_up_needs_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DEFAULT_RECORDING.is_dir() and DEFAULT_PROFILE.is_file()):
        pytest.skip("no recording ships here")

    def swept(_: ReplayServer) -> CapacityTable:
        pytest.fail(f"write it anew: `python -m engine.replay.capacity --out {SHIPPED}`")

    monkeypatch.setattr(capacity_store, "sweep", swept)
    server = ReplayServer.load(ReplayConfig())
    shipped = server.capacity_table
    plain, best = server.roomy(16), []
    # The mix itself, drained by the trees that are best for its classes, finds what the table says.
    classes = [server.manifest.classes.index(name) for name in ("coding", "chat", "summarization")]
    asked = RecordedDrawing(server, WorkloadConfig(load=1.0)).asked
    queue = saturating(plain, classes)
    prompt, output = mean_lengths(asked)
    for prompt_s, output_s in drained(shipped.trees[:3], [queue] * 3, plain):
        best.append(1 / (prompt_s * prompt + output_s * output))
    assert shipped.rps(asked) == pytest.approx(max(best), rel=0.03)


def test_the_command_shows_the_fastest_trees_and_writes_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, recording = recorded()
    write_shard(tmp_path / "tiny", recording, 0)
    write_manifest(tmp_path / "tiny", manifest)
    known_profile(manifest).save(tmp_path / "profile.json")
    out = tmp_path / "capacity.json"
    options = ["--recording", str(tmp_path / "tiny"), "--profile", str(tmp_path / "profile.json")]
    assert capacity.main([*options, "--slots", "2", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "all alike" in told and "summarization" in told and " 1.00" in told
    assert json.loads(out.read_text())["classes"] == list(manifest.classes)
    assert capacity.main([*options, "--slots", "2", "--out", str(tmp_path)]) == 2
    assert capacity.main(["--recording", str(tmp_path / "nowhere")]) == 2
    assert "holds no recording" in capsys.readouterr().err


# -- live ------------------------------------------------------------------------------------------


def test_a_live_server_of_the_recorded_pair_has_the_capacity_of_its_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, recording = recorded()
    server, mix = live_server(), [Asked("coding", 1.0, 12.0, 20.0)]
    estimate = server.capacity_of(mix)
    step_s = server.full_batch_s / SLOTS
    assert estimate == pytest.approx(1 / (20 * step_s + 12 * server.prefill_s_per_token))
    assert server.capacity_table is None and server.capacity_source.startswith("estimated")
    with pytest.raises(UserError, match="no hardware profile"):
        capacity_live.stand_in(server)

    write_manifest(tmp_path / "other", replace(manifest, model="another"))
    write_shard(tmp_path / "tiny", recording, 0)
    write_manifest(tmp_path / "tiny", manifest)
    monkeypatch.setattr(server, "profile", known_profile(manifest))
    monkeypatch.setattr(capacity_live, "DEFAULT_RECORDING", tmp_path / "other")
    with pytest.raises(UserError, match=r"no recording of .* is at hand; .* is of another"):
        capacity_live.stand_in(server)
    monkeypatch.setattr(capacity_live, "DEFAULT_RECORDING", tmp_path / "tiny")
    del server.capacity_table  # found for the server without a profile
    try:
        twin = replay_server()
        assert server.capacity_of(mix) == pytest.approx(twin.capacity_of(mix), rel=1e-3)
        assert server.capacity_source.startswith("swept")
    finally:
        del server.capacity_table


def test_a_stated_rate_needs_no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_store, "sweep", None)
    work = WorkloadConfig(duration_s=5.0, rate_rps=2.0, max_tokens=20)
    assert len(RecordedDrawing(replay_server(), work)(np.random.default_rng(0))) > 3
    with pytest.raises(TypeError):
        RecordedDrawing(replay_server(), replace(work, rate_rps=None, load=1.0)).capacity_rps  # noqa: B018
    assert EngineSettings().prefill_tokens == replay_server().settings.prefill_tokens
