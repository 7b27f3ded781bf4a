"""What `train.py` may be told: the one schema of its flags, its TOML file and a run's config.toml.

Light on imports, since `--help` reads it. Values are checked by `check`, after parsing, so that a
bad one is told in one sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from engine.errors import UserError
from train.algorithms.registry import ALGORITHMS, Kind
from train.command_line import leaves, nearest
from train.task_config import Episodes, Reward, check_task

FEWEST_IMITATED = 256
BY_REQUEST = ("ppo", "a2c")
"""Algorithms that can observe requests one by one."""
BASELINES = ("autoregressive", "chain(2)", "eagle3(3,4,8)", "capped-tree(1,1,1,1)")
"""The last serves one request at a time: where waiting costs nothing it is hard to beat."""
DEFAULT_MODEL, DEFAULT_DRAFTER = "smollm2-135m-instruct", "eagle3"  # of live
OF_NETWORKS = ("draft_head", "draft_model", "device", "attention", "dtype", "threads")
LIVE_ONLY = (*OF_NETWORKS, "prompts")
REPLAY_ONLY = ("recording", "power_cap_watts")
Preset = Literal["learning-to-draft"]


@dataclass(frozen=True)
class Serving:
    """What is served, and how much of it."""

    backend: Literal["replay", "live"] = "replay"
    """Replay: what a live engine recorded, in modelled time; live: neural models, here and now."""
    recording: Path | None = None
    """For replay: folder that record.py made; none: the one that ships with DraftGym."""
    profile: Path | None = None
    """Hardware profile; none: on live the one measured here, on replay the one that ships with
    DraftGym."""
    model: str | None = None
    """Target: a registered name or a folder in Hugging Face format; none: on live
    smollm2-135m-instruct, on replay what was recorded."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; none: the registered head of the model."""
    drafter: Literal["eagle3", "model", "prompt-lookup"] | None = None
    """What proposes candidate trees: a draft head, a smaller decoder, or n-grams of the text; none:
    on live eagle3, on replay what was recorded."""
    draft_model: str | None = None
    """For the drafter `model`: a registered name or a folder, with the target's vocabulary."""
    slots: int | None = None
    """Requests that run at once; none: 16."""
    page_size: int | None = None
    """Tokens of a KV page; none: one page a request, with FlashInfer 16 tokens."""
    kv_pool_tokens: int | None = None
    """Tokens that the KV pool holds; none: all slots full. Fewer are memory pressure."""
    power_cap_watts: float | None = None
    """For replay: constant cap on the power of the modelled device; none: no cap."""
    order: Literal["fcfs", "priority", "edf"] = "fcfs"
    """Who of the waiting requests is next: first come, the class's priority, earliest deadline."""
    overload: Literal["none", "reject", "degrade", "minimum-progress"] = "none"
    """What the engine does when more is demanded than it can give."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks compute. Auto: on a card where torch finds one, else on the processor."""
    attention: Literal["auto", "plain", "flashinfer", "interpreter"] = "auto"
    """Auto: FlashInfer on a card in 16 bits, else plain. Interpreter: FlashInfer's calls, computed
    on the processor."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Auto: bfloat16 on a card, on the processor what two seconds of measuring find fastest."""
    threads: int = 0
    """Cores for the networks; 0: all of them. On a card they matter little."""
    workload: str = "shifting"
    """A preset (steady, shifting, three-peaks, overload, one-by-one), a TOML or .csv file, or a
    trace as NAME:PATH or NAME:PATH#PART (`python -m engine.workload --help` lists them)."""
    load: float | None = None
    """Arrival rate in multiples of measured capacity, none: as the workload says; the loads of a
    shifting workload are multiplied by it."""
    max_tokens: int | None = None
    """Longest answer; short ones let a few minutes hold many requests. None: 96 with a preset or a
    trace, what a workload file says."""
    prompt_tokens: int | None = None
    """Longest prompt, longer ones are cut to it; none: 96 with a preset, what a workload file says.
    On a processor reading is slow: long prompts hold up all that run, whatever tree is chosen.
    On replay texts with longer prompts are left out; none: 512 with a preset."""
    prompts: Path | None = None
    """For live: JSONL file or folder of prompts; none: those that ship with DraftGym."""


@dataclass(frozen=True)
class Learning:
    """How the controller is trained."""

    policy: str = "ppo"
    """Learning algorithm: ppo, a2c, recurrent-ppo, maskable-ppo, dqn, qrdqn, sac or tqc."""
    actions: Kind | None = None
    """Tiers: depth, width and nodes by class. Sized-tiers: and how many requests may run at once.
    Prices: factors that steer slack-priced, which selects the nodes; needs a hardware profile, not
    for presets and masks. None: sized-tiers, with --imitate tiers."""
    observation: Literal["aggregate", "per-request"] = "aggregate"
    """What is observed: features by class and of the engine, or these and every request by itself,
    over which the network attends by class (ppo and a2c, over plans)."""
    minutes: float = 4.0
    """Training time in all, resumed parts included."""
    decisions: int | None = None
    """Decisions in all, resumed parts included; training ends after the update that reaches them,
    or when the minutes are over, whichever comes first. None: minutes alone."""
    decide_every: int = 4
    """Engine iterations that a decision stands for."""
    set: tuple[str, ...] = ()
    """Hyper-parameters as KEY=VALUE, over those of train/hyperparameters/POLICY.yaml, by
    Stable-Baselines3's names: n_steps=64 learning_rate=3e-4 policy_kwargs.net_arch=[128,128]."""
    imitate: str | None = None
    """On replay, for policies over tiers: a controller, such as slack-priced, that a new policy is
    fitted to before training. None: it starts with small trees and batches."""
    imitate_decisions: int = 8192
    """Decisions of that controller that are recorded."""
    half_life_s: float = 10.0
    """Time on the engine's clock after which a reward counts for half. 0, with a preset that
    rewards rates: a decision is credited with its own reward alone."""
    save_every_s: float = 60.0
    """Seconds between two checkpoints, from which a run that was killed is resumed."""
    held_out_every: int = 65_536
    """On replay: decisions between two evaluations on held-out episodes, by which best/model.zip is
    chosen. 0: none, and best is the model of the rollout with the most reward a second, as on
    live."""
    patience: int | None = None
    """On replay: end training after so many held-out evaluations in a row without a better one.
    None: never."""

    fine_tune_live: int | None = None
    """On replay: decisions on a live engine of the recorded model, on which the trained policy goes
    on learning; then it is said what was lost on the way. Training ends there after the update that
    reaches them. None: none."""

    @property
    def kind(self) -> Kind:
        """What is chosen from: as asked, else by what the algorithm can choose."""
        if self.actions is not None:
            return self.actions
        return "tiers" if self.imitate is not None else "sized-tiers"


@dataclass(frozen=True)
class Evaluation:
    """What the trained controller is compared with, and for how long."""

    eval_seeds: int | None = None
    """Seeded arrivals; every controller serves each of them. None: 10 on replay, 3 live."""
    eval_seconds: float | None = None
    """Engine time for all of the comparison. None: 2,400 on replay, where they pass in a minute or
    two, and 180 live."""
    baselines: tuple[str, ...] = BASELINES
    """Controllers to compare with."""


@dataclass(frozen=True)
class TrainConfig:
    """Train a controller on an engine, live or replayed, compare it, and export it."""

    learning: Learning = field(default_factory=Learning)
    serving: Serving = field(default_factory=Serving)
    evaluation: Evaluation = field(default_factory=Evaluation)
    seed: int = 0
    """Of arrivals, prompts and the network's start."""
    out: Path | None = None
    """Run folder to make; none: runs/POLICY-WORKLOAD-DATE-TIME."""
    config: Path | None = None
    """TOML file of settings, keys named as these options; the command line overrides it."""
    resume: Path | None = None
    """Run folder to go on with; its settings hold unless given anew."""
    reward: Reward = field(default_factory=Reward)
    episodes: Episodes = field(default_factory=Episodes)
    preset: Preset | None = None
    """A published set-up, whose settings take the place of the defaults. learning-to-draft: one
    request at a time, a tree chosen by the paths of the one before, tokens a second rewarded."""

    @property
    def comparison(self) -> tuple[int, float]:
        """Seeds and engine seconds of the comparison, by the backend where they are left open."""
        seeds, seconds = self.evaluation.eval_seeds, self.evaluation.eval_seconds
        usual_seeds, usual_s = (10, 2400.0) if self.serving.backend == "replay" else (3, 180.0)
        return (usual_seeds if seeds is None else seeds), (usual_s if seconds is None else seconds)

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        learning, evaluation = self.learning, self.evaluation
        if self.resume is not None and self.out is not None:
            raise UserError(
                f"--out {self.out} --resume {self.resume}: a resumed run stays in its folder; "
                "give one of the two"
            )
        if learning.policy not in ALGORITHMS:
            raise UserError(
                f"--policy {learning.policy}: no learning algorithm of that name; "
                f"{nearest(learning.policy, list(ALGORITHMS))} (fixed controllers are compared "
                "with python evaluate.py)"
            )
        values = leaves(self)
        for name in ("minutes", "eval_seconds"):
            require(name, values[name], 0, exclusive=True)
        for name in ("decide_every", "decisions", "fine_tune_live"):
            require(name, values[name], 1)
        for name in ("imitate_decisions", "patience"):
            require(name, values[name], 1)
        for name in ("eval_seeds", "seed", "held_out_every", "save_every_s", "half_life_s"):
            require(name, values[name], 0)
        if learning.patience is not None and (
            self.serving.backend == "live" or not learning.held_out_every
        ):
            raise UserError(
                f"--patience {learning.patience}: counts held-out evaluations, which are made on "
                "replay with --held-out-every above 0; leave it out, or have them made"
            )
        tuned = learning.fine_tune_live
        if tuned is not None and self.serving.backend == "live":
            raise UserError(
                f"--fine-tune-live {tuned} --backend live: goes on on live networks after training "
                "on replay, and this training is live from the start; leave one of the two out"
            )
        check_serving(self.serving, on_networks=tuned is not None)
        from train.algorithms.arguments import arguments_of, fine_tuning_arguments
        from train.task import check_live, check_preset

        arguments = arguments_of(self)
        if tuned is not None:
            fine_tuning_arguments(arguments, self)
        arguments.algorithm.check_actions(learning.kind)
        check_imitation(learning, self.serving.backend)
        check_observation(learning)
        if self.resume is not None:
            from train.environment_version import check_taken_up

            check_taken_up(self.resume, learning.kind, learning.observation)
        check_preset(self)
        check_live(self, arguments.n_envs)
        if self.serving.backend == "live" and self.episodes.shared_arrivals > 1:
            raise UserError(
                f"--shared-arrivals {self.episodes.shared_arrivals} --backend live: every live "
                "engine has a capacity and so arrivals of its own; leave it out, or train on replay"
            )
        is_off_policy = arguments.algorithm.is_off_policy
        check_task(self.reward, self.episodes, learning.policy, is_off_policy, arguments.n_envs)
        if self.comparison[0] and not evaluation.baselines:
            raise UserError("--baselines: expected at least one controller; or --eval-seeds 0")


@dataclass(frozen=True)
class ExportConfig:
    """Write a run's controller folder again.

    Reads the run's checkpoint, which like every Stable-Baselines3 file can run code: use it only
    for runs that you made.
    """

    run: tyro.conf.Positional[Path]
    """Run folder that train.py made."""
    which: Literal["last", "best"] | None = None
    """Last: as training ended; best: of those judged on the way, the best by held-out episodes, on
    live by reward a second of its own rollout. None: as train.py exports, the best where held-out
    episodes judged and no limits were set, else the last."""
    out: Path | None = None
    """Folder to write; none: controller/ in the run folder."""
    check: bool = False
    """Compare its actions with the trained policy's on 1,000 observations."""
    onnx: bool = False
    """Add policy.onnx, the logits for other hosts."""


def check_imitation(learning: Learning, backend: str) -> None:
    """Raise UserError for a controller that cannot be imitated, or by whom it cannot."""
    spec = learning.imitate
    if spec is None:
        return
    if backend == "live":
        raise UserError(
            f"--imitate {spec}: controllers are imitated on replay alone; leave it out, or train "
            "on replay"
        )
    if "tiers" not in ALGORITHMS[learning.policy].acts_on or learning.kind != "tiers":
        by = learning.policy if learning.kind == "tiers" else f"--actions {learning.kind}"
        raise UserError(
            f"--imitate {spec}: {by} does not choose tiers of depth, width and nodes alone, in "
            "which plans are imitated; choose ppo, a2c, recurrent-ppo or maskable-ppo over "
            "--actions tiers, or leave it out"
        )
    if learning.imitate_decisions < FEWEST_IMITATED:
        raise UserError(
            f"--imitate-decisions {learning.imitate_decisions}: expected at least "
            f"{FEWEST_IMITATED}, some of which are held out"
        )
    from policies.registry import make

    try:
        make(spec)
    except UserError as error:
        raise UserError(f"--imitate {error} (python evaluate.py --list shows them)") from error


def check_observation(learning: Learning) -> None:
    """Raise UserError where requests cannot be observed one by one."""
    if learning.observation != "per-request":
        return
    given = ""
    if learning.policy not in BY_REQUEST:
        given = f"--policy {learning.policy}"
    elif learning.kind == "prices":
        given = f"--actions {learning.kind}"
    elif learning.imitate is not None:
        given = f"--imitate {learning.imitate}"
    if given:
        raise UserError(
            f"--observation per-request {given}: requests are observed by "
            f"{' and '.join(BY_REQUEST)} over plans alone, without --imitate; leave one of the two "
            "out"
        )


def check_serving(serving: Serving, on_networks: bool = False) -> None:
    """Raise UserError for a value of the serving group that cannot be meant.

    `on_networks`: what is recorded will also be served by networks, so options say which and where.
    """
    require("load", serving.load, 0, exclusive=True)
    require("max_tokens", serving.max_tokens, 2)
    require("prompt_tokens", serving.prompt_tokens, 1)
    require("slots", serving.slots, 1)
    require("threads", serving.threads, 0)
    require("power_cap_watts", serving.power_cap_watts, 0, exclusive=True)
    unused = set(REPLAY_ONLY if serving.backend == "live" else LIVE_ONLY)
    for name in sorted(unused - set(OF_NETWORKS if on_networks else ())):
        if (given := getattr(serving, name)) != getattr(Serving(), name):
            raise UserError(
                f"--{name.replace('_', '-')} {given}: has no meaning with --backend "
                f"{serving.backend}; leave it out, or choose the other backend"
            )


def require(name: str, value: Any, least: float, exclusive: bool = False) -> None:
    """Raise UserError for an option's number that is not at least `least`, or above it."""
    if value is None:
        return
    if not math.isfinite(value) or value < least or (exclusive and value == least):
        expected = f"above {least}" if exclusive else f"of at least {least}"
        raise UserError(f"--{name.replace('_', '-')} {value}: expected a number {expected}")
