"""Exported controllers that observe paths see what environments showed; what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import envs
from engine.errors import UserError
from engine.loop import Engine
from engine.protocol import Bools, Candidates, Limits, Plan, View
from engine.request import Request
from envs.learning_to_draft import learning_to_draft
from policies.action_codec import TierCodec
from policies.actions import ActionTable
from policies.exported import load_exported
from policies.features import Observation
from policies.fixed import FixedTree
from policies.learned import LearnedController, write_controller
from policies.learned_paths import LearnedPaths
from policies.manifest import PATHS, Manifest, parse_manifest
from policies.network import NetworkShape
from policies.path_features import LOWEST, observe_paths, trees_of
from tests.tiny_recording import LIMITS, asked, live_server, replay_server

TABLE = learning_to_draft()["actions"]
INPUTS = trees_of(TABLE).max_candidates + 58


def parts(seed: int = 0, hold: int = 1) -> tuple[dict[str, np.ndarray], Manifest]:
    """Random weights that choose many trees, and their manifest."""
    rng = np.random.default_rng(seed)
    codec = TierCodec(TABLE)
    shape = NetworkShape((INPUTS, 24, codec.outputs))
    weights = {
        name: rng.normal(0, 0.2, size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    weights["action.bias"][0] = -9.0  # speculation off, which would show no tree again
    return weights, Manifest("paths", shape, codec, hold=hold, observation=PATHS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_controller(tmp_path / "controller", *parts())
    return tmp_path / "controller"


class Watched(LearnedPaths):
    """Notes what it observes, and what it chose."""

    def reset(self, limits: Limits) -> None:
        super().reset(limits)
        self.seen: list[Observation] = []
        self.depths: list[int] = []

    def observed(self, view: View) -> Observation:
        self.seen.append(super().observed(view))
        return self.seen[-1]

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        self.depths.append(int(plan.depth[0]))
        return plan


@pytest.mark.parametrize("hold", [1, 3])
def test_it_sees_what_the_environment_showed(hold: int) -> None:
    """Step for step on replay, requests that end and begin among them."""
    weights, manifest = parts(hold=hold)
    controller = Watched(manifest, weights)

    def draw(_: np.random.Generator) -> list[Request]:
        requests: list[Request] = list(asked(6, 20, 0.3))
        for request in requests:  # the environment knows one class
            request.slo_class = 0
        return requests

    options = learning_to_draft() | {"requests": draw, "decide_every": hold}
    for name in ("slots", "workload"):
        del options[name]
    options |= {"server": replay_server(slots=1)}
    env: Any = gymnasium.make(envs.SERVE_ID, **options)
    observation, _ = env.reset(seed=0)
    shown, truncated = [], False
    while not truncated:
        shown.append(observation)
        observation, *_, truncated, _ = env.step(controller.network.action(observation))
    engine = replay_server(slots=1).engine(asked(6, 20, 0.3))
    records = engine.serve(controller)
    np.testing.assert_array_equal(controller.seen, shown)
    assert engine.clock_s == env.unwrapped.engine.clock_s and len(records) == 6
    assert len(set(controller.depths)) > 2, "always the same: little is compared"
    told = np.array(shown)[:, : INPUTS - 58].any(axis=1)
    assert 0.2 < told.mean() < 1.0


class Onlooker(FixedTree):
    """A fixed tree that notes the paths of every tree."""

    def __init__(self) -> None:
        super().__init__("onlooker", 6, 8, 32)
        self.seen: list[Observation] = []

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        context = int(view.context_tokens[0])
        self.seen.append(observe_paths(candidates, 0, context, trees_of(TABLE)))
        return None


def test_replay_shows_what_live_would() -> None:
    """A recording lacks most of a tree's nodes, but none that stands above the cut.

    But where more of them do than a plan may keep: there the least likely are missing.
    """
    seen = {}
    for name, server in (("live", live_server()), ("replay", replay_server())):
        onlooker = Onlooker()
        for request in asked(4, 24):
            plain = Request(0, 0, request.prompt, 24, 0.0)
            of = [replace(request, id=0)] if name == "replay" else [plain]
            server.engine(of).serve(onlooker)  # type: ignore[attr-defined]
        seen[name] = np.array(onlooker.seen)
    replay, live = seen["replay"], seen["live"]
    told = (live[:, : INPUTS - 58] > LOWEST).sum(axis=1)
    fits = told <= LIMITS.max_nodes
    np.testing.assert_allclose(replay[fits], live[fits], atol=1e-5)
    assert 0.5 < fits.mean() < 1.0 and told[fits].max() > 32 and len(live) > 20
    assert (np.abs(replay - live) > 1e-5).mean() < 0.002


def test_actions_equal_torchs(folder: Path) -> None:
    weights, _ = parts()
    controller = LearnedController.load(folder)
    assert isinstance(controller, LearnedPaths)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 24), torch.nn.Tanh(), torch.nn.Linear(24, TABLE.nvec.sum())
    )
    for layer, name in ((model[0], "policy.0"), (model[2], "action")):
        layer.weight.data = torch.from_numpy(weights[f"{name}.weight"])
        layer.bias.data = torch.from_numpy(weights[f"{name}.bias"])
    rows = np.random.default_rng(2).uniform(-5, 1, (500, INPUTS)).astype(np.float32)
    with torch.no_grad():
        logits = model(torch.from_numpy(rows))
    expected = [part.argmax(1).numpy() for part in logits.split(TABLE.nvec.tolist(), dim=1)]
    chosen = np.stack([controller.network.action(row) for row in rows])
    assert (chosen == np.stack(expected, 1)).all()


def test_classes_are_nothing_to_it_and_several_requests_too_many(folder: Path) -> None:
    controller = load_exported(folder)
    assert isinstance(controller, LearnedPaths)
    engine: Engine = replay_server(slots=1).engine(asked(6, 8))
    assert {record.slo_class for record in engine.serve(controller)} == {0, 1, 2}
    with pytest.raises(UserError, match=r"observes one request, and \d decode at once"):
        replay_server().engine(asked(4, 8)).serve(controller)


def test_larger_trees_than_it_was_trained_on_are_seen_as_far_as_they_fit() -> None:
    rng = np.random.default_rng(3)
    size, layout = 40, Limits(1, max_depth=2, max_width=2, max_nodes=4)
    depth = np.sort(rng.integers(1, 6, size))
    chance = rng.uniform(0.01, 1, size)
    nothing = np.zeros((1, size), np.int64)
    tree = Candidates(np.array([size]), nothing, depth[None], nothing, chance[None])
    seen = observe_paths(tree, 0, 0, layout)
    assert seen.shape == (2 + 4 + 58,) and seen[-1] == np.float32(0.1)
    for layer, places in ((1, slice(0, 2)), (2, slice(2, 6))):
        best = np.sort(chance[depth == layer])[::-1][: places.stop - places.start]
        np.testing.assert_allclose(seen[places], np.log(best), rtol=1e-6)


def test_manifests_that_cannot_be_are_refused(folder: Path) -> None:
    weights, manifest = parts()
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    assert parse_manifest(text).observation == PATHS and '"observation"' in text
    codec = TierCodec(TABLE, masked=True)
    for change, says in (
        ({"codec": codec}, "masks are worked out from the observation aggregate"),
        ({"observation": "hidden-states"}, "observation is 'hidden-states'; this DraftGym knows"),
        ({"codec": TierCodec(ActionTable(("a", "b")))}, "expected a table of plans of a single"),
        ({"observation": "aggregate"}, "the network takes 386 inputs"),
    ):
        with pytest.raises(UserError, match=says):
            replace(manifest, **change)  # type: ignore[arg-type]
    changed = text.replace('"learning-to-draft"', '"aggregate"')
    with pytest.raises(UserError, match="does not match its own digest"):
        parse_manifest(changed)
    assert set(weights) == {"policy.0.weight", "policy.0.bias", "action.weight", "action.bias"}
