"""What `evaluate.py` may be told. Light on imports, since `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.errors import UserError
from train.command_line import leaves
from train.config import Serving, check_serving, require

SEEDS, MATRIX_SEEDS = 5, 3
REQUESTS = 32
PROCESSES = 2
SMALL = ("best-fixed", "adaserve", "slack-priced")
FULL = (
    *(*SMALL, "autoregressive", "vllm-spec(4)", "sarathi", "turbospec", "sglang-ema", "smart"),
    *("hedge", "nightjar", "adaptivespec-tree"),
)
"""Who is compared in a matrix where nobody is named."""
SECONDS = 10.0


@dataclass(frozen=True)
class EvaluateConfig:
    """Compare controllers on the same seeded arrivals, with intervals."""

    policy: tuple[str, ...] = ()
    """Controllers: a name as --list shows it, a call such as chain(4), module:Class, or the folder
    of a run or of an exported controller. The verdict is about the first of the last kind, else
    about the first. None, in a matrix: three for the small one, twelve for the full one."""
    serving: Serving = field(default_factory=lambda: Serving(workload="steady"))
    seeds: int | None = None
    """Seeded arrivals; every controller serves each of them. None: 5, in a cell of a matrix 3."""
    seconds: float = SECONDS
    """Engine time of each controller on each seed; requests arrive in its first part."""
    seed: int = 0
    """Of the intervals' resampling. The arrivals are fixed, and never trained on."""
    matrix: Literal["small", "full"] | None = None
    """On replay, in place of one workload: all cells of class mix, lengths, target and drafter,
    request rate and burst shape. Small: 240 cells, minutes; full: 5,280, hours. Repeat the command
    with the same --out to go on after a stop."""
    requests: int = REQUESTS
    """Of a matrix: requests of a run, about."""
    processes: int | None = None
    """On replay: runs, in a matrix cells, that are served at once. None: 2 in a matrix, else 1, for
    further processes take seconds to begin."""
    against: Path | None = None
    """Earlier results of the same test, results.json, matrix.json or their folder: exit with 1
    where a controller is worse than there, beyond its interval."""
    out: Path | None = None
    """Folder for the results; none: runs/evaluate-WORKLOAD-DATE-TIME."""
    trace_out: Path | None = None
    """Folder for what every run did: a Chrome trace of its steps (ui.perfetto.dev), metrics in the
    Prometheus text format, tree choices and acceptance by request as JSON lines."""
    config: Path | None = None
    """TOML file of settings, keys named as these options; the command line overrides it."""
    list: bool = False
    """Show the controllers that have a name, and end."""

    @property
    def served_seeds(self) -> int:
        """How many, where it is left open."""
        usual = SEEDS if self.matrix is None else MATRIX_SEEDS
        return usual if self.seeds is None else self.seeds

    @property
    def at_once(self) -> int:
        """In how many processes it is served."""
        usual = 1 if self.matrix is None else PROCESSES
        return usual if self.processes is None else self.processes

    @property
    def policies(self) -> tuple[str, ...]:
        """Who is compared, where it is left open."""
        return self.policy or {None: (), "small": SMALL, "full": FULL}[self.matrix]

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        if not self.policies:
            raise UserError(
                "--policy: expected at least one controller (python evaluate.py --list shows them)"
            )
        check_serving(self.serving)
        require("seeds", self.seeds, 1)
        if self.against is not None and self.served_seeds < 2:
            raise UserError(
                f"--seeds {self.seeds} --against {self.against}: one seed shows no interval, and "
                "so nothing that got worse; expected two or more"
            )
        if self.against is not None and self.out is not None:
            earlier = self.against if self.against.suffix != ".json" else self.against.parent
            if self.out.resolve() == earlier.resolve():
                raise UserError(
                    f"--out {self.out}: is the folder of --against, whose results would be "
                    "overwritten by those that are compared with them; name another"
                )
        require("seconds", self.seconds, 0, exclusive=True)
        require("seed", self.seed, 0)
        require("requests", self.requests, 1)
        require("processes", self.processes, 1)
        _check_matrix(self)


def _check_matrix(config: EvaluateConfig) -> None:
    """Raise UserError for an option that a matrix, or a single workload, would not heed."""
    usual = EvaluateConfig()
    if config.matrix is None:
        unheeded, where = {"requests"}, "without --matrix"
        if config.serving.backend == "live" and config.at_once > 1:
            raise UserError(
                f"--processes {config.processes}: live runs are served one after the other, since "
                "they would take each other's time; leave it out, or add --backend replay"
            )
    else:
        unheeded = {*leaves(usual.serving), "seconds", "trace_out"}
        where = f"with --matrix {config.matrix}, whose cells are what they are"
    given, as_usual = leaves(config), leaves(usual)
    for name in sorted(unheeded):
        if given[name] != as_usual[name]:
            raise UserError(
                f"--{name.replace('_', '-')} {given[name]}: has no meaning {where}; leave it out"
            )
