"""A run of the proof: ordinary decoding, every controller beside it, and what may be said of each.

Every controller answers the same prompts under the same seeds, and draws beginnings under seeds of
its own. A control that must be caught runs along, a tree under a margin of 0.5: a proof that does
not catch it had too little to go by, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller
from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from eval.contenders import named
from eval.lossless.control import Loose
from eval.lossless.law import Fit, Law, fit, law_of
from eval.lossless.other_format import ORDINARY, Floor, floor_of
from eval.lossless.same_text import HOW, Compared, compared, is_explained, sampling_of
from eval.lossless.scope import SHORT_PROMPT, Scope, prompts_of
from eval.lossless.serving import Texts, requests_of, serve
from eval.significance import holm

CONTROL, CONTROL_MARGIN = "control: margin 0.5", 0.5
LEVEL = 0.01
"""Of a false alarm in the whole run, by Holm's rule."""
CANDIDATE_PROMPTS = 6
LOSSLESS, LOSSY, BROKEN, IDLE = "lossless", "lossy", "broken", "nothing speculated"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """What was found of one controller."""

    name: str
    claims: bool
    """Whether it says of itself that it is lossless."""
    texts: tuple[Compared, ...]
    unexplained: int
    """Departures that rounding does not explain."""
    served: Texts
    """Of all its texts together; `outputs` is left empty."""
    fit: Fit
    p: float
    """Of the law's tests, adjusted over all controllers."""

    @property
    def status(self) -> str:
        """lossless, lossy (by a margin that it owns to), broken, or nothing speculated."""
        if self.served.let_through and not self.claims:
            return LOSSY
        if self.served.let_through or self.unexplained or self.p < LEVEL:
            return BROKEN
        return LOSSLESS if self.served.tokens_per_iteration > 1.0 else IDLE


@dataclass(frozen=True)
class Report:
    """All of a run."""

    pair: str
    dtype: str
    law: Law
    proofs: tuple[Proof, ...]
    control: Proof
    floor: Floor | None
    """Of another number format; None where nobody is lossy."""

    @property
    def is_caught(self) -> bool:
        """Whether the control was found out by texts or by the law."""
        return bool(self.control.unexplained) or self.control.p < LEVEL

    @property
    def holds(self) -> bool:
        """Whether nobody is broken and the control was caught."""
        return self.is_caught and all(p.status != BROKEN for p in self.proofs)


def proved(scope: Scope, server: LiveServer, say: Say) -> Report:
    """Run everything. Raises UserError for a controller that is not known."""
    controllers = {**named(scope.policy), CONTROL: Loose(CONTROL_MARGIN)}
    prompts = prompts_of(server, scope.prompts)
    ordinary = _texts(server, scope, ORDINARY, named([ORDINARY])[ORDINARY], prompts)
    say("the law of the first tokens, by plain passes")
    start, law = _broadest(server, scope)
    found: dict[str, tuple[Mapping[str, Texts], Texts]] = {}
    for turn, (name, controller) in enumerate(controllers.items()):
        say(f"{name}, {turn + 1} of {len(controllers)}")
        under = _texts(server, scope, name, controller, prompts)
        found[name] = under, _beginnings(server, scope, name, controller, start, turn)
    rng = np.random.default_rng(scope.seed)
    fits = {name: fit(law, drawn.outputs, rng) for name, (_, drawn) in found.items()}
    adjusted = dict(zip(fits, holm([f.p for f in fits.values()]), strict=True))
    proofs = [
        _proof(
            server, name, controllers[name].lossless,
            compared(server, prompts, ordinary, under), [*under.values(), drawn],
            fits[name], adjusted[name],
        )
        for name, (under, drawn) in found.items()
    ]  # fmt: skip
    dtype = str(server.decoder.dtype).removeprefix("torch.")
    *asked, control = proofs
    floor = None
    if any(proof.status == LOSSY for proof in asked):
        say("what another number format alone changes")
        try:
            floor = floor_of(server, prompts, scope.tokens, ordinary)
        except (RuntimeError, MemoryError, UserError) as error:  # the proof itself stands
            say(f"not known: {type(error).__name__}: {error}")
    return Report(server.describe(), dtype, law, tuple(asked), control, floor)


def _texts(
    server: LiveServer,
    scope: Scope,
    name: str,
    controller: Controller,
    prompts: Sequence[list[int]],
) -> dict[str, Texts]:
    return {
        how: serve(
            server,
            name,
            controller,
            requests_of(prompts, scope.tokens, sampling_of(how, len(prompts))),
        )
        for how in HOW
    }


def _broadest(server: LiveServer, scope: Scope) -> tuple[list[int], Law]:
    """Of a few short prompts the one whose law is broadest, for there is most to spoil."""
    starts = prompts_of(server, CANDIDATE_PROMPTS, SHORT_PROMPT)
    laws = [law_of(server.decoder, s, scope.choices, scope.beginning) for s in starts]
    best = max(range(len(laws)), key=lambda i: laws[i].entropy_nats)
    return starts[best], laws[best]


def _beginnings(
    server: LiveServer,
    scope: Scope,
    name: str,
    controller: Controller,
    start: list[int],
    turn: int,
) -> Texts:
    """Draws under seeds that no other controller has: else all would be right or wrong together."""
    base = SamplingParams(temperature=1.0, top_k=scope.choices)
    first = (scope.seed + 1) * 1_000_000_000 + turn * scope.draws
    params = [replace(base, seed=first + i) for i in range(scope.draws)]
    starts = [start] * scope.draws
    return serve(server, name, controller, requests_of(starts, scope.beginning, params))


def _proof(
    server: LiveServer,
    name: str,
    claims: bool,
    texts: Sequence[Compared],
    served: Sequence[Texts],
    fitted: Fit,
    p: float,
) -> Proof:
    dtype = server.decoder.dtype
    total = Texts(
        [],
        sum(t.emitted for t in served),
        sum(t.iterations for t in served),
        sum(t.let_through for t in served),
        sum(t.given_up for t in served),
    )
    unexplained = sum(not is_explained(one, dtype) for one in texts)
    return Proof(name, claims, tuple(texts), unexplained, total, fitted, p)
