"""What varies from cell to cell of the matrix, and which cells there are.

A cell is a class mix, prompt and output lengths, a target with its drafter, a request rate in
multiples of that pair's capacity, and how arrivals bunch. Offline, acceptance can only be that of a
recording or of a published fit: target and drafter vary together, by the pairs that are known.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.replay.synthetic.generator import Shown
from engine.workload import FIRST_HELD_OUT_SEED
from engine.workload.renewal import Process

Size = Literal["small", "full"]
APART = 64  # seeds between two cells' first ones: no two cells share arrivals


@dataclass(frozen=True)
class Pair:
    """A target with its drafter, on the hardware of a profile."""

    target: str
    drafter: str
    profile: str | None = None
    """Published profile by name; None: measured, and ships with DraftGym."""
    acceptance: str = ""
    """Published pair whose acceptance is drawn; "": recorded from the models themselves."""
    shown: Shown = "calibrated"
    """What the drafter's probabilities say, of a drawn acceptance."""

    @property
    def told(self) -> str:
        """What of it is measured and what is modelled, for a reader."""
        if not self.acceptance:
            return (
                f"{self.target}, {self.drafter}: acceptance recorded, times of a measured profile"
            )
        shown = "" if self.shown == "calibrated" else f", drafts {self.shown}"
        return (
            f"{self.target}, {self.drafter}: modelled, acceptance drawn from the published figures "
            f"of {self.acceptance}{shown}, times of the published profile {self.profile}"
        )


class Burst(NamedTuple):
    """How arrivals bunch: how their gaps vary, or a spike in the middle of the run."""

    cv: float = 1.0
    process: Process = "gamma"
    spike: float = 1.0
    """Factor on the rate for a tenth of the run; the mean rate stays what it is."""


LLAMA_8B, LLAMA_70B = "llama-3.1-8b on H100", "llama-3.3-70b on 4 A100"
LLAMA_70B_PAIR = "llama-3.3-70b-instruct--lmsys-sglang-eagle3-llama3.3-instruct-70b"
SMOLLM = Pair("smollm2-135m on 2 CPU cores", "eagle3")
PAIRS: tuple[Pair, ...] = (
    SMOLLM,
    Pair(
        LLAMA_8B,
        "eagle3 (lmsys)",
        "llama-8b-h100",
        "llama-3.1-8b-instruct--lmsys-sglang-eagle3-llama3.1-instruct-8b",
    ),
    Pair(LLAMA_70B, "eagle3 (lmsys)", "llama-70b-a100", LLAMA_70B_PAIR),
    Pair(
        "llama-3.1-70b on 8 A100-40GB",
        "llama-3.2-1b",
        "adaserve-llama-70b-a100",
        "adaserve-llama-70b",
    ),
    Pair(
        LLAMA_8B,
        "eagle3 (specforge)",
        "llama-8b-h100",
        "llama-3.1-8b-instruct--lmsys-sglang-eagle3-llama-3.1-8b-instruct-specforge",
    ),
    Pair(
        LLAMA_70B,
        "eagle3 (lmsys), overconfident",
        "llama-70b-a100",
        LLAMA_70B_PAIR,
        "miscalibrated",
    ),
)
"""The small matrix has the first four. The last repeats what leans on drawn acceptance with drafts
that say more than they keep (docs/synthetic.md)."""
SMALL_PAIRS = PAIRS[:4]
UNVARIED = (
    "the recorded pair's drafter cannot vary offline (one was recorded; record.py makes others), "
    "nor can a target without a recording or published acceptance be served",
    "prompts are made as long as a cell asks for: acceptance is that of the recorded text whatever "
    "the prompt's length",
)
"""What the matrix cannot vary on a machine without a card, said wherever it is shown."""

MIXES: dict[str, dict[str, float]] = {
    "alike": {},
    "coding": {"coding": 0.6, "chat": 0.2, "summarization": 0.2},
    "summarization": {"coding": 0.2, "chat": 0.2, "summarization": 0.6},
    "chat": {"coding": 0.2, "chat": 0.6, "summarization": 0.2},
}
"""By name, weights of the classes. In AdaServe's traces six of ten requests are of one class."""
BURSTS: dict[str, Burst] = {
    "poisson": Burst(),
    "bursty": Burst(cv=3.0),
    "regular": Burst(cv=0.3),
    "heavy": Burst(cv=4.0, process="weibull"),
    "spike": Burst(spike=4.0),
}
PROMPTS, OUTPUTS = (32, 256), (32, 128)
"""Tokens of a prompt, and at most of an answer, which has half of that or more."""
LOADS: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
SMALL_LOADS: tuple[float, ...] = (0.3, 0.55, 0.8, 1.05, 1.3)


class Cell(NamedTuple):
    """One workload on one pair."""

    pair: Pair
    mix: str
    prompt_tokens: int
    output_tokens: int
    load: float
    burst: str

    @property
    def name(self) -> str:
        """What tells it from all others, in words."""
        return " · ".join(self.places.values())

    @property
    def places(self) -> dict[str, str]:
        """Where it stands on every axis, as the rows and the summary have it."""
        return {
            "target": self.pair.target,
            "drafter": self.pair.drafter,
            "mix": self.mix,
            "lengths": f"{self.prompt_tokens} in, {self.output_tokens} out",
            "load": f"{self.load:g}",
            "burst": self.burst,
        }

    def seeds(self, count: int) -> list[int]:
        """Held-out seeds of its own, the same in every matrix that has the cell."""
        place = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=4).digest())
        return [FIRST_HELD_OUT_SEED + APART * place + i for i in range(count)]


AXES = ("target", "drafter", "mix", "lengths", "load", "burst")


def cells_of(size: Size) -> list[Cell]:
    """All cells of a matrix: 240 of the small one, 5,280 of the full one."""
    lengths = list(itertools.product(PROMPTS, OUTPUTS))
    if size == "full":
        return _cells(PAIRS, list(MIXES), lengths, LOADS, list(BURSTS))
    # Answers that cost most of the time, and prompts that do.
    extremes = [(PROMPTS[0], OUTPUTS[1]), (PROMPTS[1], OUTPUTS[0])]
    mixes, bursts = ["alike", "coding", "summarization"], ["poisson", "bursty"]
    return _cells(SMALL_PAIRS, mixes, extremes, SMALL_LOADS, bursts)


def _cells(
    pairs: Sequence[Pair],
    mixes: Sequence[str],
    lengths: Sequence[tuple[int, int]],
    loads: Sequence[float],
    bursts: Sequence[str],
) -> list[Cell]:
    return [
        Cell(pair, mix, *length, load, burst)
        for pair, mix, length, load, burst in itertools.product(
            pairs, mixes, lengths, loads, bursts
        )
    ]
