"""Nightjar: a bandit over chain lengths for each batch size, which knows what resuming costs.

Li et al. 2025 (arXiv 2512.22420; research/slo_serving.md §3.10, and a public digest of the paper,
read in November 2026). For each batch size B there is a bandit over k in {0, …, k_max} drafted
tokens. Its time runs in blocks of 1, 2, 4, … iterations, a block in bins, and one arm is kept for a
whole bin. The b-th bin of a block explores with probability 1 / b, any arm being as likely; else it
takes

    argmin over k of latency(B, k) + [k > 0 and the last k was 0] · switch / k

latency being the mean seconds a token so far. A drafter that rested has to run what was decoded
meanwhile before it drafts again: that is `switch`, for a drafter that lies L tokens behind and
batch B.

*Ours*: bins of ⌊√H⌋ iterations in a block of H (the digest gives no length); k_max = 5; a latency
is one request's, seconds · B / tokens without the reading of prompts, so that both terms are
seconds a token. The paper looks `switch` up in a table measured beforehand; here it is a number of
seconds for each token that each request lies behind, `switch_token_s` at first and then the mean of
what resuming took longer to draft than that arm otherwise does. L is the largest over the batch, as
there. What resuming took is kept out of the latencies. Arms of which nothing is known are not taken
unless exploring, and the first bin of all explores. An iteration counts for nothing where the
engine drafted none of what the arm says.

Left out is the paper's memory action, moving an idle drafter to the host: here a drafter stays.

Probe rule after depth 0: bins that explore come for ever, the first of every block surely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller, Floats, Limits, Outcome, Plan, View, uniform_plan
from policies.parameters import check_whole
from policies.spelling import spelled

LONGEST = 5


def exploit(latency_s: Floats, resumes: bool, switch_s: float) -> int:
    """The arm [k_max + 1] with the least latency, resuming included; unknown ones are inf."""
    length = np.arange(len(latency_s))
    extra = np.where(length > 0, switch_s / np.maximum(length, 1), 0.0) if resumes else 0.0
    return int(np.argmin(latency_s + extra))


class Mean:
    """A running mean for each of some things."""

    def __init__(self, size: int) -> None:
        """Of nothing yet."""
        self.value, self.count = np.zeros(size), np.zeros(size, np.int64)

    def feed(self, at: int, fresh: float) -> None:
        """One more number."""
        self.count[at] += 1
        self.value[at] += (fresh - self.value[at]) / self.count[at]

    def known(self) -> Floats:
        """The means, inf where there is none."""
        return np.where(self.count > 0, self.value, np.inf)


@dataclass
class Clock:
    """Where a bandit stands in its blocks and bins."""

    block: int = 0
    bin: int = 0
    left_in_block: int = 0
    left_in_bin: int = 0

    def tick(self) -> bool:
        """One iteration more; whether a bin begins with it."""
        begins = self.left_in_bin == 0
        if self.left_in_block == 0:
            self.block, self.bin = self.block + 1, 0
            self.left_in_block = 2 ** (self.block - 1)
        if begins:
            self.bin += 1
            whole = math.isqrt(2 ** (self.block - 1))
            self.left_in_bin = min(whole, self.left_in_block)
        self.left_in_block -= 1
        self.left_in_bin -= 1
        return begins


class Bandit:
    """What is known at one batch size."""

    def __init__(self, arms: int) -> None:
        """Arms are chains of 0, 1, …"""
        self.clock = Clock()
        self.arm = 0
        self.latency_s, self.draft_s = Mean(arms), Mean(arms)


class Nightjar(Controller):
    """One chain length for the batch, learned for each batch size."""

    def __init__(self, longest: int = LONGEST, switch_token_s: float = 0.0, seed: int = 0) -> None:
        """k_max, the first price of resuming, and the seed of the exploration. Raises UserError."""
        self.name = spelled(
            "nightjar", Nightjar, longest=longest, switch_token_s=switch_token_s, seed=seed
        )
        check_whole(self.name, 1, longest=longest)
        if not 0.0 <= switch_token_s < float("inf"):
            raise UserError(
                f"{self.name}: switch_token_s is {switch_token_s!r}; expected seconds from 0 on"
            )
        if type(seed) is not int or seed < 0:
            raise UserError(f"{self.name}: seed is {seed!r}; expected a whole number from 0 on")
        self.longest, self.first_switch_token_s, self.seed = longest, switch_token_s, seed
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """Nothing is known at any batch size."""
        self.arms = min(self.longest, limits.max_depth, limits.max_nodes) + 1
        self.rng = np.random.default_rng(self.seed)
        self.bandits: dict[int, Bandit] = {}
        self.switch = Mean(1)
        self._bandit = Bandit(self.arms)
        self._last = 0  # k of the last iteration; nothing was drafted before the first
        self._resumed_tokens = 0  # B · L where this iteration resumes, else 0

    @property
    def switch_token_s(self) -> float:
        """Seconds of resuming for each token that each request lies behind."""
        known = bool(self.switch.count[0])
        return float(self.switch.value[0]) if known else self.first_switch_token_s

    def plan(self, view: View) -> Plan:
        """The arm of the bin under way, for everybody."""
        batch = int(view.active.sum())
        self._bandit = bandit = self.bandits.setdefault(batch, Bandit(self.arms))
        # Each iteration without drafts emits one token that the drafter has not run.
        behind = np.minimum(view.since_proposed[:, 0], view.tokens_out)[view.active]
        lag = batch * int(behind.max(initial=0))
        resumes = self._last == 0
        if bandit.clock.tick():
            explores = self.rng.random() < 1.0 / bandit.clock.bin
            known = bandit.latency_s.known()
            if explores or not np.isfinite(known).any():
                bandit.arm = int(self.rng.integers(self.arms))
            else:
                bandit.arm = exploit(known, resumes, self.switch_token_s * lag)
        self._resumed_tokens = lag if resumes and bandit.arm > 0 else 0
        depth = min(bandit.arm, view.limits.max_depth, view.limits.max_nodes)
        return uniform_plan(view.limits, depth, width=1, nodes=depth)

    def observe(self, outcome: Outcome) -> None:
        """What the arm took goes into its means, and what resuming took into the price of that."""
        bandit = self._bandit
        arm = bandit.arm
        self._last = arm if outcome.drafted.any() else 0
        seconds = outcome.iteration_s - outcome.prefill_s
        if not outcome.ran.any() or seconds <= 0 or (arm > 0) != bool(outcome.drafted.any()):
            return
        if self._resumed_tokens:
            if bandit.draft_s.count[arm]:
                longer_s = max(outcome.draft_s - float(bandit.draft_s.value[arm]), 0.0)
                self.switch.feed(0, longer_s / self._resumed_tokens)
            seconds -= min(self.switch_token_s * self._resumed_tokens, outcome.draft_s)
        else:
            bandit.draft_s.feed(arm, outcome.draft_s)
        tokens = int(outcome.accepted_length[outcome.ran].sum())
        bandit.latency_s.feed(arm, seconds * int(outcome.ran.sum()) / tokens)
