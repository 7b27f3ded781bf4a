"""A machine's profile: how long its passes take, what they draw, and how well that is known.

The engine predicts steps with it and sizes the node budget; controllers price what they plan. All
times are seconds. NumPy only; measuring and fitting are elsewhere in this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from engine.errors import UserError
from engine.profile import store
from engine.profile.cost_model import TABULATED, PassCost
from engine.profile.identity import Identity
from engine.protocol import PROMPT_CHUNKS, Floats, Ints

PASSES_TABULATED = 65_536  # tokens: what a first draft step catches up on after ordinary steps
KV_MEMORY_SHARE = 0.9  # of a card's memory that serving engines fill by default


@dataclass(frozen=True)
class Origin:
    """Where a part of a profile comes from."""

    kind: str
    """measured (on the set-up itself), published (by others) or modelled (by a stated rule)."""
    source: str
    """Who measured what and under which licence, or the rule."""

    def __post_init__(self) -> None:
        if self.kind not in ("measured", "published", "modelled"):
            raise ValueError(f"origin {self.kind!r}, expected measured, published or modelled")


@dataclass(frozen=True)
class FitReport:
    """How well a prediction holds on points that the fit never saw; shares of the time."""

    form: str
    """pieces, stairs or both; "sum" for the whole step."""
    points: int
    held_out: int
    error_median: float
    error_p95: float
    noise_median: float
    """How far a repeated step lies from the median of its repeats, the same statistics."""
    noise_p95: float


@dataclass(frozen=True)
class PowerUse:
    """Watts of steps by their verified tokens, both ascending in tokens."""

    tokens: tuple[float, ...]
    watts: tuple[float, ...]
    is_measured: bool
    """False: the machine offers no counter, `engine.telemetry.PowerModel` was asked."""
    stages: dict[str, float] = field(default_factory=dict)
    """Watts of "draft" and "prefill", each run by itself; {} where no card was metered."""
    idle_watts: float = 0.0
    """With nothing to do; 0: unknown."""
    limit_watts: float = 0.0
    """The most that the device allows itself; 0: unknown."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes."""

    weight_bytes: int
    """Read by a one-token pass of the target."""
    kv_bytes_per_token: int
    resident_bytes: int
    """Of the process, with the networks and all caches; of a published profile, all weights."""
    device_bytes: int = 0
    """Of all cards together; 0: not known, or not a card."""


@dataclass(frozen=True)
class HardwareProfile:
    """What the steps of a set-up cost."""

    identity: Identity
    """Whose steps: the profile holds for no other."""
    measured_at: str
    verify: PassCost
    draft_first: PassCost
    draft_next: PassCost
    prefill: PassCost
    """Of one request's chunk; its `request_s` is the first token's, at the prompt's end."""
    host: PassCost
    """Admission, view, selection and commit: the engine's own work of a step."""
    most_tokens: int
    """The largest verification that was measured; beyond, the last slope goes on."""
    context_tokens: float
    """Typical context of a request while measuring."""
    fits: dict[str, FitReport]
    power: PowerUse
    memory: MemoryUse
    origins: dict[str, Origin] = field(default_factory=dict)
    """Of verify, draft, prefill, host, power and memory; a part without an entry was measured."""

    @classmethod
    def load(cls, path: Path, here: Identity | None = None) -> HardwareProfile:
        """Read the profile at `path`; raises UserError when there is none that can be read.

        With `here`, the set-up that it is wanted for, another set-up's profile is refused too.
        """
        profile = store.read(path, cls)
        if here is not None and (different := profile.identity.differences(here)):
            raise UserError(
                f"{path} is the hardware profile of another set-up ({'; '.join(different)}); "
                f"measure one for this with `{here.command}`"
            )
        return profile

    def save(self, path: Path | None = None) -> Path:
        """Write to `path`, or to the user's cache; returns where."""
        path = store.profile_path(self.identity) if path is None else path
        store.write(path, self)
        return path

    def origin(self, part: str) -> Origin:
        """Where a part comes from: verify, draft, prefill, host, power or memory."""
        if part in self.origins:
            return self.origins[part]
        if part == "power" and not self.power.is_measured:
            return Origin("modelled", "no counter can be read here (engine.telemetry.PowerModel)")
        return Origin("measured", f"python -m engine.profile, {self.measured_at}")

    def kv_pool_tokens(self, share: float = KV_MEMORY_SHARE) -> int:
        """Tokens whose keys and values fit: (device memory · share - weights) / bytes a token.

        Raises UserError where the device's memory is not known, or the weights alone fill it.
        """
        memory = self.memory
        if memory.device_bytes == 0:
            raise UserError(
                f"the hardware profile of {self.identity.machine.processor} does not say how much "
                "memory the device has; give the KV pool in tokens"
            )
        left = memory.device_bytes * share - memory.resident_bytes
        if left < memory.kv_bytes_per_token:
            raise UserError(
                f"{self.identity.model} fills {memory.resident_bytes / 2**30:.1f} of "
                f"{memory.device_bytes / 2**30:.1f} GiB, of which {share:.0%} may be used; take "
                "more cards or a smaller model"
            )
        return int(left / memory.kv_bytes_per_token)

    # -- predictions -----------------------------------------------------------------------------

    def verify_s(
        self, tokens: ArrayLike, kv_tokens: ArrayLike = 0.0, requests: ArrayLike = 1
    ) -> Floats:
        """Verification of `tokens` nodes, roots included, over contexts of `kv_tokens` in all."""
        return self.verify(tokens, kv_tokens, requests)

    def draft_s(
        self, step_rows: Sequence[float] | Ints, kv_tokens: float = 0.0, requests: int = 1
    ) -> float:
        """All draft steps of an iteration.

        `step_rows` are the rows that go through the drafter in each. The first step's are committed
        tokens that it has not run yet, at least one a request and more after ordinary steps (the
        price of not having drafted); the others' are the beams of all requests together.
        """
        if len(step_rows) == 0:
            return 0.0
        first, *beams = (float(rows) for rows in step_rows)
        further_s, beam_s, priced = 0.0, 0.0, -1.0
        for rows in beams:
            if rows != priced:  # as many rows as the step before take as long
                beam_s, priced = self.draft_next.at(rows, kv_tokens, requests), rows
            further_s += beam_s
        return self.draft_first.at(first, kv_tokens, requests) + further_s

    def prefill_s(
        self, tokens: ArrayLike, context_tokens: ArrayLike = 0, ends_prompt: ArrayLike = True
    ) -> Floats:
        """A prompt, or a chunk of one behind `context_tokens` of it; 0 for no tokens.

        Where the prompt ends with the chunk, the target's first token is computed too.
        """
        prompts = np.asarray(ends_prompt, float)
        return np.where(np.asarray(tokens) > 0, self.prefill(tokens, context_tokens, prompts), 0.0)

    def step_s(
        self,
        depth: ArrayLike,
        width: ArrayLike,
        nodes: ArrayLike,
        context_tokens: ArrayLike,
        node_budget: int | None = None,
        catch_up_tokens: ArrayLike = 1,
        prefill_tokens: int = 0,
    ) -> float:
        """A whole iteration under a plan, the controller's own time not counted.

        Arrays have one entry a decoding request, as a `Plan` has; `catch_up_tokens` are committed
        tokens that the drafter has not run (see `draft_s`).
        """
        given = depth, width, nodes, context_tokens, catch_up_tokens
        d, w, n, context, behind = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(a, float)) for a in given)
        )
        drafts = (d > 0) & (n > 0)
        kept = float(np.minimum(n, w + (d - 1) * w**2)[drafts].sum())
        rows: list[float] = []
        if drafts.any():
            widths = np.bincount(d[drafts].astype(np.int64), weights=w[drafts])  # by depth
            beams = np.cumsum(widths[::-1])[::-1][2:]  # rows of the second draft step, the third, …
            rows = [float(behind[drafts].sum()), *beams.tolist()]
        seconds = self.passes_s(
            d.size,
            float(context.sum()),
            kept if node_budget is None else min(kept, node_budget),
            rows,
            int(drafts.sum()),
            float(context[drafts].sum()),
        )
        return seconds + (float(self.prefill_s(prefill_tokens)) if prefill_tokens else 0.0)

    def passes_s(
        self,
        requests: int,
        kv_tokens: float,
        kept: float,
        draft_rows: Sequence[float],
        drafting: int,
        drafting_kv_tokens: float,
    ) -> float:
        """An iteration that verifies `kept` nodes and the roots of `requests`.

        Of these `drafting` draft, over contexts of so many tokens, with `draft_rows` as `draft_s`
        has them.
        """
        verified = requests + kept
        seconds = self.verify.at(verified, kv_tokens, requests)
        seconds += self.host.at(verified, kv_tokens, requests)
        if draft_rows:
            seconds += self.draft_s(draft_rows, drafting_kv_tokens, drafting)
        return seconds

    def node_budget(
        self, multiple: float, kv_tokens: float | None = None, requests: int = 1
    ) -> int:
        """The most verified tokens, roots included, that cost no more than `multiple` steps.

        A step here is the verification of one token of one request. Never more than was measured,
        and 0 when not even the roots of `requests` fit. `kv_tokens` None takes the contexts seen
        while measuring. Raises UserError for a multiple that is not above 0.
        """
        if not multiple > 0:
            raise UserError(
                f"a node budget of {multiple} one-token steps; expected a number above 0"
            )
        kv = self.context_tokens * requests if kv_tokens is None else kv_tokens
        one_s = self.verify.of_whole(np.array([1]), kv / max(requests, 1), 1)
        limit_s = multiple * float(one_s[0])
        # No cost is negative: whose curve alone takes longer need not be priced.
        end = self.verify.curve.end_within(limit_s, max(self.most_tokens, requests))
        tokens = np.arange(requests, end)
        fits = self.verify.of_whole(tokens, kv, requests) <= limit_s
        fitting = fits.nonzero()[0]
        return requests + int(fitting[-1]) if len(fitting) else 0

    def watts(self, tokens: ArrayLike) -> Floats:
        """Power of a step that verifies so many tokens; constant beyond what was measured."""
        return np.interp(np.asarray(tokens, float), self.power.tokens, self.power.watts)

    def tabulated(self, count: int) -> tuple[Floats, Floats, Floats, Floats, float, float]:
        """What `engine.kernels.price_table` asks of a machine, at counts up to `count` at least."""
        return self._tabulated if count < TABULATED else self._tabulate(count)

    @cached_property
    def passes(self) -> tuple[Floats, Floats]:
        """What `engine.kernels.class_steps` asks of a machine; to be read."""
        parts = self.verify, self.host, self.draft_first, self.draft_next
        counts = np.arange(PASSES_TABULATED)
        return (
            np.stack([p.curve.at_each(counts) for p in parts]),
            np.array([(p.kv_token_s, p.attended_s, p.request_s) for p in parts]),
        )

    @cached_property
    def prompt_chunks_s(self) -> Floats:
        """Seconds of reading as many tokens of a prompt as each of `PROMPT_CHUNKS`; to be read."""
        return self.prefill_s(PROMPT_CHUNKS, 0, False)

    @cached_property
    def _tabulated(self) -> tuple[Floats, Floats, Floats, Floats, float, float]:
        return self._tabulate(TABULATED - 1)

    def _tabulate(self, count: int) -> tuple[Floats, Floats, Floats, Floats, float, float]:
        looked_up, counts = (self.verify, self.host, self.draft_next), np.arange(count + 1)
        return (
            np.stack([*(p.curve(counts) for p in looked_up), self.watts(counts)]),
            np.array(
                [(p.kv_token_s, p.attended_s, p.request_s) for p in (*looked_up, self.draft_first)]
            ),
            *self.draft_first.curve.parts(),
            float(self.power.idle_watts),
            float(self.power.stages.get("draft", float("nan"))),
        )
