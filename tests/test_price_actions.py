"""Prices that steer slack-priced: the table, who is steered, environment, snapshot and export."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import envs
from engine.errors import UserError
from engine.protocol import Ints, Limits
from engine.tiny import tiny_server
from envs.serve import ServeEnv
from policies import manifest as manifest_format
from policies.action_codec import BoxCodec, TierCodec, codec_from_dict
from policies.actions import ActionTable
from policies.delegate import defined
from policies.features import feature_table
from policies.learned import LearnedController, LearnedPrices, write_controller
from policies.manifest import Manifest
from policies.network import NetworkShape
from policies.price_actions import PriceActions
from policies.slack_priced import SlackPriced
from policies.steered import Steered
from tests.controller_episodes import serve
from tests.tiny_recording import CLASSES, LIMITS, asked, replay_server

TABLE = PriceActions(CLASSES)
NEUTRAL, RUNNING, READING = TABLE.neutral, 4, 3


def steered(**chosen: int) -> Steered:
    """Under neutral prices but for these entries of the action, written `at_2=0`."""
    actor = TABLE.actor()
    assert isinstance(actor, Steered)
    actor.reset(LIMITS)
    actor.decide(action_of(**chosen))
    return actor


def action_of(**chosen: int) -> Ints:
    """A neutral action but for these entries."""
    action = NEUTRAL.copy()
    for name, tier in chosen.items():
        action[int(name.removeprefix("at_"))] = tier
    return action


# -- the table -----------------------------------------------------------------------------------


def test_an_action_is_a_factor_for_each_class_and_two_for_the_engine() -> None:
    assert TABLE.nvec.tolist() == [5, 5, 5, 5, 7]
    weight, reading, running = TABLE.decode(NEUTRAL)
    assert (weight.tolist(), reading, running) == ([1.0] * 3, 1.0, 1.0)
    weight, reading, running = TABLE.decode(np.array([0, 4, 2, 1, 1]))
    assert (weight.tolist(), reading, running) == ([0.25, 4.0, 1.0], 0.5, 0.125)
    assert TABLE.figures(np.array([0, 4, 2, 1, 1])) == {
        "weight/coding": 0.25, "weight/chat": 4.0, "weight/summarization": 1.0, "reading": 0.5,
        "running": 0.125,
    }  # fmt: skip
    few = PriceActions(("all",), (0.5, 1), (1,), (0.5, 1))
    assert PriceActions.from_dict(json.loads(json.dumps(few.to_dict()))) == few


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (np.zeros(4, np.int64), "shape \\(4,\\)"),
        (np.zeros(5), "float64; expected 5 whole numbers"),
        (np.array([0, 0, 0, 0, 7]), "outside the table"),
        (np.array([-1, 0, 0, 0, 0]), "outside the table"),
    ],
)
def test_what_is_no_action_is_told(action: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        TABLE.decode(action)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"class_names": ()}, "at least one, each once"),
        ({"weights": (0.5, 2.0)}, "weights are .* 1.0 among them"),
        ({"weights": (2.0, 1.0)}, "rising"),
        ({"reading": (0.0, 1.0)}, "factors above 0"),
        ({"reading": (True, 2.0)}, "factors above 0"),
        ({"running": (0.5, 1.0, 2.0)}, "1.0 last"),
    ],
)
def test_wrong_tables_are_told(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        PriceActions(**{"class_names": CLASSES, **wrong})


# -- who is steered ------------------------------------------------------------------------------


def test_neutral_prices_are_slack_priced_to_the_last_bit() -> None:
    ours, theirs = serve("replay", TABLE.actor()), serve("replay", SlackPriced())
    assert (ours.texts, ours.course) == (theirs.texts, theirs.course)
    assert any(any(drafted) for _, drafted, _ in ours.course), "or nothing is compared"
    assert defined(TABLE.actor()) == ["select"] and TABLE.actor().needs_profile


def test_a_class_that_is_worth_more_is_given_more() -> None:
    engine, gained, serving = replay_server().engine(asked(8, 24)), 0, SlackPriced()
    serving.reset(LIMITS)
    while (view := engine.next_decision()) is not None:
        own = view.active & (view.slo_class == 0)
        nodes, weights = [], []
        for tier in (0, 2, 4):
            actor = steered(at_0=tier)
            weights.append(actor.weights(view, 0.01))
            nodes.append(int(actor.plan(view).nodes[own].sum()))
        np.testing.assert_array_equal(weights[0][own] * 4, weights[1][own])
        np.testing.assert_array_equal(weights[2][own], weights[1][own] * 4)
        np.testing.assert_array_equal(weights[0][~own], weights[2][~own])
        gained += nodes[2] - nodes[0]
        engine.run_iteration(view, serving)
    assert gained > 0


def test_reading_scales_prompt_tokens_and_running_caps_the_batch() -> None:
    for tier, most in ((6, 4), (5, 2), (0, 1)):
        engine, held = replay_server().engine(asked(8, 12, 0.02)), []
        actor = steered(at_4=tier)
        while (view := engine.next_decision()) is not None:
            engine.run_iteration(view, actor)
            held.append(int(engine.slots.active[0].sum()))
        assert len(engine.records()) == 8 and max(held) == most
    view = next_view()
    tokens = [steered(at_3=tier).plan(view).prefill_tokens for tier in (1, 2, 3)]
    assert tokens[1] is not None and tokens == [round(tokens[1] / 2), tokens[1], 2 * tokens[1]]
    most_running = [steered(at_4=tier).plan(view).max_running for tier in (0, 4, 5, 6)]
    assert most_running == [1, 2, 2, None], "the share of four slots, rounded up"


def next_view() -> Any:
    """Of a fresh engine at its first decision."""
    engine = replay_server().engine(asked(5, 24))
    return engine.next_decision()


def test_decisions_are_counted_by_class_and_forgotten_with_the_episode() -> None:
    actor = steered()
    assert actor.decide(NEUTRAL) == 0
    assert actor.decide(action_of(at_1=0)) == 1
    assert actor.decide(action_of(at_1=1, at_2=0)) == 2
    assert actor.decide(action_of(at_1=1, at_2=0, at_4=2)) == 3, "all see a smaller batch"
    actor.reset(LIMITS)
    assert actor.prices.running == 1.0 and (actor.prices.weight == 1).all()


def test_features_tell_the_means_of_the_latest_plan() -> None:
    actor, view = steered(), next_view()
    assert [part.tolist() for part in actor.previous[:3]] == [[0] * 3, [1] * 3, [0] * 3]
    plan = actor.plan(view)
    for c in range(3):
        own = view.active & (view.slo_class == c)
        if own.any():
            assert actor.previous.nodes[c] == plan.nodes[own].mean()
            assert actor.previous.depth[c] == plan.depth[own].mean()
        else:
            assert (actor.previous.depth[c], actor.previous.width[c]) == (0, 1)
    assert actor.previous.depth.any() and (actor.previous.margin == 1).all()


# -- environment and snapshot --------------------------------------------------------------------


def environment(**options: Any) -> ServeEnv:
    """Twelve requests on the tiny recording, served under prices."""
    made = gymnasium.make(
        envs.SERVE_ID, server=replay_server, actions=TABLE, decide_every=2,
        requests=lambda generator: asked(12, 24, float(generator.uniform(0.01, 0.03))), **options,
    )  # fmt: skip
    serving = made.unwrapped
    assert isinstance(serving, ServeEnv)
    return serving


def play(env: ServeEnv, actions: list[Ints]) -> list[tuple[Any, ...]]:
    """What steps bring, to the end of the episode at most."""
    brought = []
    for action in actions:
        observation, reward, _, truncated, info = env.step(action)
        brought.append((observation.tolist(), reward, truncated, info["clock_s"]))
        if truncated:
            break
    return brought


def test_an_environment_under_neutral_prices_serves_as_slack_priced_does() -> None:
    env = environment()
    env.reset(seed=3)
    play(env, [NEUTRAL] * 1000)
    assert env.engine is not None
    requests = [replace(r, output=[]) for r in env.engine.requests]
    engine = replay_server().engine(requests)
    engine.serve(SlackPriced())
    # An observation takes no modelled time, so both clocks agree.
    assert [r.finish_s for r in engine.records()] == [r.finish_s for r in env.engine.records()]


def test_live_engines_are_steered_too() -> None:
    env = gymnasium.make(
        envs.LIVE_ID, server=lambda: tiny_server(limits=Limits(slots=3)), actions=TABLE,
        requests=lambda _: asked(3, 4),
    )  # fmt: skip
    env.reset(seed=0)
    assert env.action_space.contains(NEUTRAL)
    assert isinstance(env.step(NEUTRAL)[0], np.ndarray)


def test_a_snapshot_carries_what_the_optimizer_learned() -> None:
    rng = np.random.default_rng(1)
    actions = [rng.integers(0, TABLE.nvec) for _ in range(40)]
    env, fresh = environment(), environment()
    env.reset(seed=5)
    play(env, actions[:10])
    taken = env.snapshot()
    expected = play(env, actions[10:])
    fresh.reset(seed=6)
    play(fresh, actions[20:25])
    for again in (fresh, env):
        again.restore(taken)
        assert play(again, actions[10:]) == expected
    again.restore(taken)
    again._actor.reset(LIMITS)  # which forgets it
    assert play(again, actions[10:]) != expected


def test_another_table_is_another_environment() -> None:
    env = environment()
    env.reset(seed=1)
    other = replay_environment(ActionTable(CLASSES))
    other.reset(seed=1)
    with pytest.raises(UserError, match="action table"):
        other.restore(env.snapshot())


def replay_environment(table: Any) -> ServeEnv:
    """The same environment with another table."""
    made = gymnasium.make(
        envs.SERVE_ID, server=replay_server, actions=table, requests=lambda _: asked(4, 8)
    )
    serving = made.unwrapped
    assert isinstance(serving, ServeEnv)
    return serving


# -- export --------------------------------------------------------------------------------------


def exported(folder: Path, codec: Any = None) -> Path:
    """A controller of random weights that changes its mind."""
    codec = codec or TierCodec(TABLE)
    shape = NetworkShape((len(feature_table(CLASSES)), 16, codec.outputs))
    rng = np.random.default_rng(2)
    weights = {
        name: rng.normal(0, 0.7, size).astype(np.float32)
        for name, size in shape.tensor_shapes().items()
    }
    write_controller(folder, weights, Manifest("ppo", shape, codec, hold=2))
    return folder


def test_an_exported_controller_repeats_the_environments_episode(tmp_path: Path) -> None:
    controller = LearnedController.load(exported(tmp_path / "c"))
    assert isinstance(controller, LearnedPrices) and controller.needs_profile
    assert controller.lossless and controller.manifest.actions == TABLE
    env = environment()
    observation, _ = env.reset(seed=4)
    controller.reset(LIMITS)
    chosen, truncated = [], False
    while not truncated:
        chosen.append(controller.network.action(observation))
        observation, *_, truncated, _ = env.step(chosen[-1])
    assert env.engine is not None and len({tuple(a) for a in chosen}) > 3
    engine = replay_server().engine([replace(r, output=[]) for r in env.engine.requests])
    engine.serve(controller)
    assert [r.finish_s for r in engine.records()] == [r.finish_s for r in env.engine.records()]


def change(folder: Path, **values: Any) -> None:
    """Other values in the manifest, with a digest that fits."""
    path = folder / "manifest.json"
    held = json.loads(path.read_text(encoding="utf-8")) | values
    del held["digest"]
    held["digest"] = manifest_format._digest(held)
    path.write_text(json.dumps(held), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"actions": {**TABLE.to_dict(), "kind": "wishes"}}, "actions of kind 'wishes'"),
        ({"actions": {**TABLE.to_dict(), "pace": [1.0]}}, "price actions: got"),
        ({"actions": {**TABLE.to_dict(), "weights": [1.0]}}, "outputs; expected 15"),
        ({"actions": {**TABLE.to_dict(), "weights": ["1"]}}, "factors above 0"),
        ({"actions": ActionTable(CLASSES).to_dict()}, "outputs; expected"),
        ({"codec": {"kind": "tiers", "masked": True}}, "masks are of whole plans"),
    ],
)
def test_a_changed_manifest_is_refused_in_a_sentence(
    tmp_path: Path, values: dict[str, Any], told: str
) -> None:
    change(exported(tmp_path / "c"), **values)
    with pytest.raises(UserError, match=told):
        LearnedController.load(tmp_path / "c")


def test_the_kind_of_controller_must_fit_its_actions(tmp_path: Path) -> None:
    controller = LearnedController.load(exported(tmp_path / "c"))
    with pytest.raises(TypeError, match="does not carry out prices"):
        LearnedController(controller.manifest, {})


def test_a_box_holds_prices_and_starts_neutral(tmp_path: Path) -> None:
    codec = BoxCodec(TABLE)
    assert (codec.choose(codec.middle(NEUTRAL)) == NEUTRAL).all()
    for tiers in ([0, 0, 0, 0, 0], [4, 4, 4, 4, 6], [0, 1, 2, 3, 4]):
        assert codec.choose(codec.middle(np.array(tiers))).tolist() == tiers
    loaded = LearnedController.load(exported(tmp_path / "c", codec))
    assert loaded.manifest.codec == codec
    with pytest.raises(UserError, match="presets are of whole plans"):
        presets = {"kind": "presets", "version": 1, "groups": [], "plans": [], "hash": ""}
        codec_from_dict(presets, TABLE)
