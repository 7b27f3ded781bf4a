"""On which episodes training learns: shared, randomised, led up to; and what nonsense is told."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.utils import seeding

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.request import Request
from engine.workload import WorkloadConfig
from engine.workload.build import disturbances_of
from engine.workload.disturbances import KINDS
from engine.workload.presets import shifting, steady
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from envs.reward import GoodputReward
from policies.actions import ActionTable
from tests import test_resumed_training as resuming
from tests.tiny_recording import replay_server
from train.algorithms.lagrangian import Gains
from train.algorithms.shared_baseline import others_mean
from train.config import Learning, Serving, TrainConfig
from train.curriculum import STAGES, Curriculum, halved, steadied
from train.curriculum_progress import CurriculumProgress
from train.randomised import LOAD, PROFILE_POWER, randomised
from train.sb3_vec_env import FleetVecEnv
from train.task_config import Episodes, Reward, limits_of
from train.training_draw import Apart, training_draw

SHORT = WorkloadConfig(name="short", duration_s=0.5, load=1.2, max_tokens=16)


def arrivals(requests: list[Request]) -> list[tuple[float, int, int]]:
    return [(r.arrival_s, r.slo_class, len(r.prompt)) for r in requests]


# Shared arrivals.


class Kept(ServeFleet):
    """Remembers what every replica was given."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.given: list[list[Any]] = [[] for _ in range(self.replicas)]

    def reset(self, replica: int, seed: int | None = None) -> None:
        super().reset(replica, seed)
        self.given[replica].append(arrivals(list(self.fleet._served[replica])))


def given(shared_by: int) -> tuple[list[list[Any]], list[list[int]]]:
    """By replica its episodes, and after which steps the later ones began."""
    server, table = replay_server(), ActionTable(DEFAULT_CLASSES.names)
    config = TrainConfig(episodes=Episodes(shared_arrivals=shared_by))
    episodes = ReplayEpisodes(server, requests=training_draw(server, SHORT, config)[0])
    fleet = Kept(episodes, 4, table, decide_every=4)
    env = FleetVecEnv(fleet)
    env.shared_by = shared_by
    env.seed(3)
    env.reset()
    rng = np.random.default_rng(0)
    ends: list[list[int]] = [[] for _ in range(4)]
    for step in range(60):
        *_, over, _ = env.step(rng.integers(0, table.nvec, (4, len(table.nvec))))
        for replica in np.flatnonzero(over).tolist():
            ends[replica].append(step)
    return fleet.given, ends


def test_neighbours_are_given_the_same_episodes_whenever_theirs_end() -> None:
    episodes, ends = given(2)
    assert ends[0] != ends[1]
    for first, second in ((0, 1), (2, 3)):
        both = list(zip(episodes[first], episodes[second], strict=False))
        assert len(both) > 2
        assert all(ours == theirs for ours, theirs in both)
    assert episodes[0][0] != episodes[2][0]
    assert episodes[0][0] != episodes[0][1]


def test_by_default_everybody_has_episodes_of_their_own() -> None:
    episodes, _ = given(1)
    assert len({str(of[0]) for of in episodes}) == 4


def test_an_episode_takes_one_number_however_much_it_draws() -> None:
    def much(generator: np.random.Generator) -> list[Request]:
        generator.random(int(generator.integers(1, 50)))
        return []

    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    Apart(much)(ours)
    Apart(lambda _: [])(theirs)
    assert ours.random() == theirs.random()


def test_the_baseline_is_the_others_mean_at_the_same_time() -> None:
    rng = np.random.default_rng(0)
    steps, replicas, group = 12, 6, 3
    episode = np.sort(rng.integers(0, 2, (steps, replicas)), axis=0)
    time_s = np.cumsum(rng.uniform(0.1, 1.0, (steps, replicas)), axis=0)
    values = rng.normal(size=(steps, replicas))
    found = others_mean(values, episode, time_s, group)
    seen = 0
    for step in range(steps):
        for replica in range(replicas):
            told = []
            for other in range(replica - replica % group, replica - replica % group + group):
                rows = np.flatnonzero(episode[:, other] == episode[step, replica])
                later = [k for k in rows if time_s[k, other] >= time_s[step, replica]]
                before = [k for k in rows if time_s[k, other] <= time_s[step, replica]]
                if other != replica and later and before:
                    a, b = before[-1], later[0]
                    length_s = max(time_s[b, other] - time_s[a, other], 1e-12)
                    share = (time_s[step, replica] - time_s[a, other]) / length_s
                    told.append((1 - share) * values[a, other] + share * values[b, other])
            seen += len(told)
            wanted = np.mean(told) if told else 0.0
            assert found[step, replica] == pytest.approx(wanted)
    assert 20 < seen < 2 * steps * replicas


# Randomisation.


def test_episodes_are_disturbed_at_random_and_repeat() -> None:
    config = TrainConfig(episodes=Episodes(randomise=True))
    draw, _ = training_draw(replay_server(), replace(SHORT, duration_s=2.0), config)
    kinds: set[str] = set()
    for seed in range(12):
        once, again = (draw(np.random.default_rng(seed)) for _ in range(2))
        assert arrivals(once) == arrivals(again)
        wrong = disturbances_of(once)
        assert wrong.of == disturbances_of(again).of
        kinds |= {d.kind for d in wrong.of}
        assert LOAD[0] <= wrong.value("arrival_rate", 1.0) <= LOAD[1]
        assert PROFILE_POWER[0] <= wrong.value("power_cap", 1.0) <= 1.0
        # For all of the episode.
        assert wrong.value("power_cap", 0.0) == wrong.value("power_cap", 1e6)
    assert kinds == {"arrival_rate", "acceptance", "draft_time", "memory", "power_cap"}
    assert kinds < set(KINDS)


def test_a_fleet_serves_randomised_episodes() -> None:
    server, table = replay_server(), ActionTable(DEFAULT_CLASSES.names)
    config = TrainConfig(episodes=Episodes(randomise=True))
    draw, _ = training_draw(server, SHORT, config)
    fleet = ServeFleet(ReplayEpisodes(server, requests=draw), 3, table, decide_every=4)
    env = FleetVecEnv(fleet)
    env.seed(0)
    env.reset()
    waited = 0.0
    for _ in range(40):
        *_, infos = env.step(np.ones((3, len(table.nvec)), np.int64) * (table.nvec > 1))
        waited = max(waited, *(info["waiting"] for info in infos))
    assert 0.0 < waited <= 1.0


def test_live_networks_are_neither_faster_nor_better_than_they_are() -> None:
    drawn = randomised(SHORT, "live", memory=False).drawn_disturbances
    assert {d.kind for d in drawn} == {"arrival_rate", "acceptance", "draft_time"}
    assert all(d.value[0] >= 1.0 for d in drawn if d.kind == "draft_time")
    assert all(d.value[1] <= 1.0 for d in drawn if d.kind == "acceptance")


def test_by_default_training_serves_the_workload_itself() -> None:
    server = replay_server()
    draw, curriculum = training_draw(server, SHORT, TrainConfig())
    from train.evaluation import drawing

    plain = drawing(server, Serving(), SHORT)
    ours, theirs = (of(seeding.np_random(5)[0]) for of in (draw, plain))
    assert arrivals(ours) == arrivals(theirs)
    assert curriculum is None and not disturbances_of(ours).of


# Curriculum.


def test_stages_come_by_the_share_of_training() -> None:
    drawn: list[WorkloadConfig] = []

    def drawing(stage: WorkloadConfig) -> Any:
        return lambda _: drawn.append(stage)

    curriculum = Curriculum(shifting(), drawing)
    for share in (0.0, 0.19, STAGES[0], 0.49, STAGES[1], 1.0):
        curriculum.share = share
        curriculum(np.random.default_rng(0))
    one, half, true = steadied(shifting()), halved(shifting()), shifting()
    assert drawn == [one, one, half, half, true, true]
    assert one.shifts is None and one.load == pytest.approx(0.85)
    assert half.shifts is not None and half.shifts.load == pytest.approx((0.675, 1.025))
    assert half.shifts.acceptance == pytest.approx((0.8, 1.0))


def test_a_curriculum_is_told_between_rollouts() -> None:
    curriculum = Curriculum(shifting(), lambda _: lambda _: [])
    progress = CurriculumProgress(curriculum)
    learner: Any = SimpleNamespace(
        share_done=0.3, logger=SimpleNamespace(record=lambda *_: None), get_env=lambda: None
    )
    progress.init_callback(learner)
    progress.on_rollout_start()
    assert (curriculum.share, curriculum.stage) == (0.3, 1)


def test_a_workload_of_one_regime_leads_nowhere() -> None:
    with pytest.raises(UserError, match=r"--curriculum --workload steady: .* does not shift"):
        Curriculum(steady(), lambda _: lambda _: [])


# Options.


def test_the_options_default_to_the_environments_own_reward() -> None:
    assert Reward().goodput() == GoodputReward()
    assert Gains(*Reward().limit_gains) == Gains()
    priced = Reward(2.0, 0.1, 0.3, 0.7, 0.01, 0.5).goodput()
    assert priced == GoodputReward("integral", 2.0, 0.1, 0.3, 0.7, 0.01, 0.5)


@pytest.mark.parametrize(
    ("changes", "policy", "sentence"),
    [
        ({"reward": Reward(tail_price=-1.0)}, "ppo", r"--tail-price -1: expected"),
        ({"reward": Reward(joule_tokens=math.nan)}, "ppo", r"--joule-tokens nan: expected"),
        ({"reward": Reward(limits=("speed=3",))}, "ppo", r"--limits speed=3: .*violations=0.1"),
        ({"reward": Reward(limits=("power=9", "power=8"))}, "ppo", r"--limits power=8: .* once"),
        ({"reward": Reward(limits=("waiting=1.5",))}, "ppo", r"above 0 and below 1"),
        ({"reward": Reward(limits=("power",))}, "ppo", r"--limits power: expected a number"),
        ({"reward": Reward(limit_gains=(1.0, 0.1, 0.0, 1.0))}, "ppo", r"below 1"),
        ({"reward": Reward(limits=("power=9",))}, "dqn", r"--policy dqn: a replay buffer would"),
        ({"episodes": Episodes(shared_arrivals=0)}, "ppo", r"--shared-arrivals 0: expected"),
        ({"episodes": Episodes(shared_arrivals=5)}, "ppo", r"divisor of the 32 engines"),
        ({"episodes": Episodes(shared_arrivals=4)}, "sac", r"--policy sac: compares within"),
    ],
)
def test_nonsense_is_one_sentence(changes: Any, policy: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        TrainConfig(Learning(policy=policy), **changes).check()


def test_sound_options_pass_and_are_read_back(tmp_path: Path) -> None:
    from train.command_line import as_toml, parse_with_files

    config = TrainConfig(
        reward=Reward(limits=("violations=0.1", "power=150"), centre_rewards=True),
        episodes=Episodes(shared_arrivals=8, randomise=True, curriculum=True),
    )
    config.check()
    assert limits_of(config.reward.limits) == {"violations": 0.1, "power": 150.0}
    path = tmp_path / "config.toml"
    path.write_text(as_toml(config), encoding="utf-8")
    assert parse_with_files(TrainConfig, [], "train.py", lambda _: [path]) == config


# Together.

WORKLOAD = """
duration_s = 0.8
[shifts]
duration_s = [0.2, 0.4]
load = [0.6, 1.2]
"""


def test_a_killed_run_with_all_of_it_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = tmp_path / "tiny.toml"
    workload.write_text(WORKLOAD, encoding="utf-8")
    limits = ("violations=0.05", "power=20", "waiting=0.001")
    whole, again = (
        replace(
            resuming.settings("ppo", workload, tmp_path / name),
            reward=Reward(limits=limits, centre_rewards=True, tail_price=0.1),
            episodes=Episodes(shared_arrivals=2, randomise=True, curriculum=True),
        )
        for name in ("whole", "again")
    )
    one = resuming.train(whole)
    other = resuming.killed_and_resumed(again, monkeypatch)
    ours, theirs = resuming.content(other, "ppo"), resuming.content(one, "ppo")
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, its)
    models = [
        resuming.load_model(run.checkpoint, resuming.ALGORITHMS["ppo"]) for run in (one, other)
    ]
    kept = [model.carried for model in models]  # type: ignore[attr-defined]
    assert all(kept[0][name] == kept[1][name] for name in ("Limits", "Centring", "SharedBaseline"))
    assert max(multiplier["integral"] for multiplier in kept[0]["Limits"].values()) > 0
    assert kept[0]["Centring"]["time_s"] > 0
    told = one.metrics.read_text(encoding="utf-8")
    for tag in ("limits/power/multiplier", "limits/violations/rate", "train/reward_rate"):
        assert f'"{tag}"' in told
    assert '"train/curriculum_stage": 2.0' in told
