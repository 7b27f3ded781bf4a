"""`best-fixed`: its tree is the one that attains most on training arrivals, found once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES, ClassTable, SLOClass
from engine.errors import UserError
from engine.protocol import Limits
from engine.replay import capacity_live
from engine.replay.capacity_trees import GRID, Tree, within
from engine.replay.drawing import RecordedDrawing
from engine.replay.recording_folder import write_manifest, write_shard
from engine.workload import WorkloadConfig
from eval import best_fixed, compare
from eval.runner import SeededRequests
from eval.runner import run as run_paired
from policies import registry
from policies.actions import most_running
from policies.best_fixed import BestFixed, awaiting
from tests.tiny_recording import known_profile, live_server, recorded, replay_server

WORK = WorkloadConfig(name="tiny", duration_s=6.0, load=0.7, max_tokens=24)
SECONDS = 8.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "best-fixed"


def test_it_says_so_while_it_has_no_tree() -> None:
    controller = registry.make("best-fixed")
    with pytest.raises(UserError, match="has no tree yet"):
        controller.reset(Limits())
    assert awaiting([controller, registry.make("tiered:best-fixed"), registry.make("chain")])[0]
    named = registry.make("best-fixed(2, 1, 2)")
    assert named.name == "best-fixed" and awaiting([named]) == []
    with pytest.raises(UserError, match="expected all three"):
        registry.make("best-fixed(depth=2)")
    with pytest.raises(UserError, match="depth is -1"):
        registry.make("best-fixed(-1, 1, 1)")


def test_a_settled_one_serves_as_the_tree_does() -> None:
    settled = BestFixed()
    settled.settle(3, 2, 6)
    server = replay_server()
    requests = RecordedDrawing(server, WORK)(np.random.default_rng(0))
    own = server.engine(requests).serve(settled)
    again = RecordedDrawing(server, WORK)(np.random.default_rng(0))
    assert own == server.engine(again).serve(registry.make("eagle3(3,2,6)"))


def test_the_sweep_is_the_paired_runners_comparison_of_the_trees() -> None:
    server = replay_server()
    draw = RecordedDrawing(server, WORK)
    episodes = [draw(np.random.default_rng(seed)) for seed in range(2)]
    found = best_fixed.swept(server, episodes, SECONDS, DEFAULT_CLASSES)
    trees = within(server.settings.limits)
    assert [f.tree for f in found] == list(trees)
    settings = replace(server.settings, horizon_s=SECONDS)
    some = [trees[i] for i in (0, 3, 8)]
    served = run_paired(
        {tree.spec: registry.make(tree.spec) for tree in some},
        [
            SeededRequests(seed, partial(lambda s: draw(np.random.default_rng(s)), seed))
            for seed in range(2)
        ],
        lambda requests: server.engine(requests, DEFAULT_CLASSES, settings),
    )
    for tree in some:
        (own,) = [f for f in found if f.tree == tree]
        runs = served.runs[tree.spec]
        met = sum(r.metrics.requests - r.metrics.violations for r in runs)
        assert own.attainment == pytest.approx(met / sum(r.metrics.requests for r in runs))
        assert own.goodput_tps == pytest.approx(np.mean([r.metrics.goodput_tps for r in runs]))
    assert len({round(f.attainment, 3) for f in found}) > 1


def test_a_batch_cap_is_swept_as_the_system_serves_it() -> None:
    server = replay_server()
    draw = RecordedDrawing(server, WORK)
    episodes = [draw(np.random.default_rng(0))]
    shares = (0.25, 1.0)
    found = best_fixed.swept(server, episodes, SECONDS, DEFAULT_CLASSES, shares)
    trees, slots = within(server.settings.limits), server.settings.limits.slots
    assert [(f.tree, f.share) for f in found] == [(t, s) for t in trees for s in shares]
    settings = replace(server.settings, horizon_s=SECONDS)
    for of in (found[0], found[1], found[8]):
        batch = most_running(of.share, slots)
        system = registry.make(f"capped-tree({', '.join(map(str, of.tree))}, {batch})")
        served = run_paired(
            {"it": system},
            [SeededRequests(0, lambda: draw(np.random.default_rng(0)))],
            lambda requests: server.engine(requests, DEFAULT_CLASSES, settings),
        )
        (run,) = served.runs["it"]
        assert of.goodput_tps == pytest.approx(run.metrics.goodput_tps)
        assert of.attainment == pytest.approx(run.metrics.attainment)
    assert found[0].attainment != found[1].attainment


def test_the_most_attained_wins_then_goodput_then_the_cheaper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = GRID[:3]

    def picked(*rows: tuple[Tree, float, float]) -> Tree:
        made = [best_fixed.Found(*row) for row in rows]
        monkeypatch.setattr(best_fixed, "swept", lambda *_: made)
        monkeypatch.setattr(best_fixed, "_read", lambda _: None)
        return best_fixed.best_tree(replay_server(), WORK, SECONDS, DEFAULT_CLASSES).tree

    assert picked((first, 0.5, 9.0), (second, 0.6, 1.0), (third, 0.6, 2.0)) == third
    assert picked((first, 0.6, 2.0), (second, 0.6, 2.0)) == first


def test_a_tree_is_found_on_training_texts_and_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, seen = replay_server(), []
    original = best_fixed.swept

    def watched(server, episodes, *rest):  # type: ignore[no-untyped-def]
        seen.append({request.text for episode in episodes for request in episode})
        return original(server, episodes, *rest)

    monkeypatch.setattr(best_fixed, "swept", watched)
    monkeypatch.setattr(best_fixed, "REQUESTS", 60)
    one = best_fixed.best_tree(server, WORK, SECONDS, DEFAULT_CLASSES)
    assert one == best_fixed.best_tree(replay_server(), WORK, SECONDS, DEFAULT_CLASSES)
    (texts,) = seen
    assert len(texts) > 3 and not server.recording.held_out[sorted(texts)].any()
    (kept,) = cache.iterdir()
    kept.write_text("damaged")
    assert one == best_fixed.best_tree(server, WORK, SECONDS, DEFAULT_CLASSES)
    for other in (replace(WORK, load=0.9), replace(WORK, cv=2.0)):
        best_fixed.best_tree(server, other, SECONDS, DEFAULT_CLASSES)
    strict = ClassTable(tuple(SLOClass(c.name, 1.0) for c in DEFAULT_CLASSES.classes))
    best_fixed.best_tree(server, WORK, SECONDS, strict)
    assert len(seen) == 5 and len(list(cache.iterdir())) == 4


def test_a_comparison_settles_it_wrapped_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_fixed, "REQUESTS", 60)
    server = replay_server()
    names = ("best-fixed", "tiered:best-fixed", "autoregressive")
    controllers = {name: registry.make(name) for name in names}
    (told,) = best_fixed.settle(controllers, server, WORK, SECONDS)
    own = controllers["best-fixed"]
    assert isinstance(own, BestFixed) and own.tree is not None
    tree = Tree(own.tree.depth, own.tree.width, own.tree.nodes)
    assert told.startswith(f"best-fixed is {tree.spec}: of 20 fixed trees")
    assert awaiting(controllers.values()) == []
    assert best_fixed.settle(controllers, server, WORK, SECONDS) == []
    draw = RecordedDrawing(server, WORK, held_out=True)
    compared = compare.compare(server, draw, controllers, seeds=2, seconds=SECONDS)
    assert set(compared.runs) == set(names)


def test_on_live_the_stand_in_is_swept_and_without_one_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_fixed, "REQUESTS", 60)
    manifest, recording = recorded()
    server, controllers = live_server(), {"best-fixed": registry.make("best-fixed")}
    cut = replace(WORK, prompt_tokens=4, truncate=True)  # no recorded prompt is so short
    with pytest.raises(UserError, match=r"no hardware profile.*or name the tree"):
        best_fixed.settle(controllers, server, cut, SECONDS)
    write_shard(tmp_path / "tiny", recording, 0)
    write_manifest(tmp_path / "tiny", manifest)
    monkeypatch.setattr(capacity_live, "DEFAULT_RECORDING", tmp_path / "tiny")
    monkeypatch.setattr(server, "profile", known_profile(manifest))
    assert best_fixed.settle(controllers, server, cut, SECONDS)
    found = best_fixed.best_tree(replay_server(), WORK, SECONDS, DEFAULT_CLASSES)
    settled = controllers["best-fixed"]
    assert isinstance(settled, BestFixed) and settled.tree is not None
    assert (settled.tree.depth, settled.tree.width, settled.tree.nodes) == found.tree
