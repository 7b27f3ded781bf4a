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
from train.command_line import leaves, nearest

ALGORITHMS = ("ppo",)
BASELINES = ("autoregressive", "chain(2)", "eagle3(3,4,8)")


@dataclass(frozen=True)
class Serving:
    """What is served, and how much of it."""

    backend: Literal["live"] = "live"
    """Live: neural models on this machine."""
    model: str = "smollm2-135m-instruct"
    """Target: a registered name or a folder in Hugging Face format."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; none: the registered head of the model."""
    drafter: Literal["eagle3", "model", "prompt-lookup"] = "eagle3"
    """What proposes candidate trees: a draft head, a smaller decoder, or n-grams of the text."""
    draft_model: str | None = None
    """For the drafter `model`: a registered name or a folder, with the target's vocabulary."""
    page_size: int | None = None
    """Tokens of a KV page; none: one page a request."""
    kv_pool_tokens: int | None = None
    """Tokens that the KV pool holds; none: all slots full. Fewer are memory pressure."""
    order: Literal["fcfs", "priority", "edf"] = "fcfs"
    """Who of the waiting requests is next: first come, the class's priority, earliest deadline."""
    overload: Literal["none", "reject", "degrade", "minimum-progress"] = "none"
    """What the engine does when more is demanded than it can give."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Auto: what two seconds of measuring find fastest."""
    threads: int = 0
    """Cores for the networks; 0: all of them."""
    workload: str = "shifting"
    """A preset (steady, shifting, overload) or a TOML file."""
    load: float | None = None
    """Arrival rate in multiples of measured capacity, none: as the workload says; the loads of a
    shifting workload are multiplied by it."""
    max_tokens: int = 96
    """Longest answer; short ones let a few minutes hold many requests."""
    prompt_tokens: int | None = None
    """Longest prompt, longer ones are cut to it; none: 96 with a preset, what a workload file says.
    On a processor reading is slow: long prompts hold up all that run, whatever tree is chosen."""
    prompts: Path | None = None
    """JSONL file or folder of prompts; none: those that ship with DraftGym."""


@dataclass(frozen=True)
class Learning:
    """How the controller is trained."""

    policy: str = "ppo"
    """Learning algorithm."""
    minutes: float = 4.0
    """Training time in all, resumed parts included."""
    decide_every: int = 4
    """Engine iterations that a decision stands for."""
    rollout: int = 32
    """Decisions between two updates."""
    batch: int = 32
    """Decisions in a gradient step."""
    epochs: int = 8
    """Passes over a rollout in an update."""
    learning_rate: float = 1e-3
    entropy: float = 0.003
    """Weight of the entropy bonus."""
    half_life_s: float = 10.0
    """Time on the engine's clock after which a reward counts for half."""


@dataclass(frozen=True)
class Evaluation:
    """What the trained controller is compared with, and for how long."""

    eval_seeds: int = 3
    """Seeded arrivals; every controller serves each of them."""
    eval_seconds: float = 180.0
    """Engine time for all of the comparison."""
    baselines: tuple[str, ...] = BASELINES
    """Controllers to compare with."""


@dataclass(frozen=True)
class TrainConfig:
    """Train a controller on a live engine, compare it with fixed trees, and export it."""

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
                f"{nearest(learning.policy, ALGORITHMS)} (fixed controllers are compared with "
                "python evaluate.py)"
            )
        values = leaves(self)
        for name in ("minutes", "learning_rate", "half_life_s", "eval_seconds"):
            _require(name, values[name], 0, exclusive=True)
        for name in ("decide_every", "rollout", "batch", "epochs"):
            _require(name, values[name], 1)
        for name in ("entropy", "eval_seeds", "seed"):
            _require(name, values[name], 0)
        check_serving(self.serving)
        if learning.rollout < 2 or learning.rollout % learning.batch:
            raise UserError(
                f"--rollout {learning.rollout} --batch {learning.batch}: expected a rollout of "
                "at least 2 that the batch divides"
            )
        if evaluation.eval_seeds and not evaluation.baselines:
            raise UserError("--baselines: expected at least one controller; or --eval-seeds 0")


@dataclass(frozen=True)
class EvaluateConfig:
    """Compare controllers on the same seeded arrivals, with intervals."""

    policy: tuple[str, ...] = ()
    """Controllers: a name as --list shows it, a call such as chain(4), module:Class, or the folder
    of a run or of an exported controller. The verdict is about the first of the last kind, else
    about the first."""
    serving: Serving = field(default_factory=lambda: Serving(workload="steady"))
    seeds: int = 5
    """Seeded arrivals; every controller serves each of them."""
    seconds: float = 10.0
    """Engine time of each controller on each seed; requests arrive in its first part."""
    seed: int = 0
    """Of the intervals' resampling. The arrivals are fixed, and never trained on."""
    out: Path | None = None
    """Folder for the results; none: runs/evaluate-WORKLOAD-DATE-TIME."""
    trace_out: Path | None = None
    """Folder for what every run did: a Chrome trace of its steps (ui.perfetto.dev), metrics in the
    Prometheus text format, tree choices and acceptance by request as JSON lines."""
    config: Path | None = None
    """TOML file of settings, keys named as these options; the command line overrides it."""
    list: bool = False
    """Show the controllers that have a name, and end."""

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        if not self.policy:
            raise UserError(
                "--policy: expected at least one controller (python evaluate.py --list shows them)"
            )
        check_serving(self.serving)
        _require("seeds", self.seeds, 1)
        _require("seconds", self.seconds, 0, exclusive=True)
        _require("seed", self.seed, 0)


@dataclass(frozen=True)
class ExportConfig:
    """Write a run's controller folder again.

    Reads the run's checkpoint, which like every Stable-Baselines3 file can run code: use it only
    for runs that you made.
    """

    run: tyro.conf.Positional[Path]
    """Run folder that train.py made."""
    which: Literal["last", "best"] = "last"
    """Last: as training ended; best: as it acted in the rollout with the most reward a second."""
    out: Path | None = None
    """Folder to write; none: controller/ in the run folder."""
    check: bool = False
    """Compare its actions with the trained policy's on 1,000 observations."""
    onnx: bool = False
    """Add policy.onnx, the logits for other hosts."""


def check_serving(serving: Serving) -> None:
    """Raise UserError for a value of the serving group that cannot be meant."""
    _require("load", serving.load, 0, exclusive=True)
    _require("max_tokens", serving.max_tokens, 2)
    _require("prompt_tokens", serving.prompt_tokens, 1)
    _require("threads", serving.threads, 0)


def _require(name: str, value: Any, least: float, exclusive: bool = False) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < least or (exclusive and value == least):
        expected = f"above {least}" if exclusive else f"of at least {least}"
        raise UserError(f"--{name.replace('_', '-')} {value}: expected a number {expected}")
