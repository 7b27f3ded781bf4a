"""Power by stage, and what a power cap does to a profile.

A capped device lowers its clocks until it draws no more than the cap. Power above idle goes with
the clock to the power of `EXPONENT`; work that is bound by arithmetic takes longer as the clock
falls, reading memory hardly does, since memory keeps its own clock. So what draws the most and
computes the most, prompts and large verifications after deep drafting, suffers the most:

    clock(w)    = ((cap - idle) / (w - idle)) ^ (1 / EXPONENT), at most 1, at least LOWEST_CLOCK
    slowdown    = 1 + share · (1 / clock - 1)
    share(n)    = arithmetic's part of a pass over n tokens, at least LEAST_SHARE

with w the watts of the stage without a cap. Arithmetic's part is n times the slope of the pass in
the upper half of what was measured, where all GPUs are bound by it, over the time of the pass.

Sources of the constants: a cap of 400 instead of 600 W cost an RTX 5090 18.1 % at draft depth 4
and 4.8 % without speculation (qwen38-mtp PR #47, research/slo_serving.md §6.18; read as time). Were
the former all arithmetic at full draw, the exponent would be 2.6, and the latter a share of 0.27.
Splitwise's simulator has prefill 1.3 times as long at half of an H100's limit (this rule: 1.37) and
decoding unchanged (1.01). Idle, where a profile does not say it, is near 63 of an A100's 400 W and
75 of an H100's 700 (Splitwise): 0.16 and 0.11 of the limit. Nobody published what a cap does to
each stage, so all this is modelled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.errors import UserError
from engine.profile.cost_model import Curve, PassCost
from engine.profile.hardware_profile import HardwareProfile, Origin
from engine.protocol import Floats, Ints

EXPONENT = 2.6
LEAST_SHARE = 0.25
LOWEST_CLOCK = 0.3
"""Share of the highest clock below which no GPU goes; a cap that asks for less is not kept."""
IDLE_SHARE = 0.13
STAGES = ("prefill", "draft_first", "draft_next", "verify", "host")


class StagePower:
    """Watts of the stages of a profile, and how much a cap slows each."""

    def __init__(self, profile: HardwareProfile) -> None:
        self.profile = profile
        power = profile.power
        self.idle_watts = power.idle_watts or IDLE_SHARE * (power.limit_watts or max(power.watts))

    def watts(self, stage: str, tokens: float, cap_watts: float = np.inf) -> float:
        """Drawn while the stage runs over so many tokens; `host` leaves the device idle.

        Raises UserError for another stage than `STAGES`, or a cap that idling breaks already.
        """
        self._check(stage, cap_watts)
        if stage == "host":
            return self.idle_watts
        free = self._free_watts(stage, tokens)
        if free <= cap_watts:
            return free
        # At the lowest clock a device draws what it draws, whatever the cap.
        lowest = self.idle_watts + (free - self.idle_watts) * LOWEST_CLOCK**EXPONENT
        return max(cap_watts, lowest)

    def free_watts(self, stage: str, tokens: Ints) -> Floats:
        """As `watts` without a cap, for many sizes at once. Raises UserError likewise."""
        self._check(stage, np.inf)
        if stage == "host":
            return np.full(tokens.shape, self.idle_watts)
        measured = self._measured_watts(stage)
        if measured is not None:
            return np.full(tokens.shape, measured)
        return np.interp(tokens, self.profile.power.tokens, self.profile.power.watts)

    def joules(self, stage: str, tokens: float, seconds: float, cap_watts: float = np.inf) -> float:
        """Energy of a stage that took so long; over accepted tokens, their energy."""
        return seconds * self.watts(stage, tokens, cap_watts)

    def clock(self, stage: str, tokens: float, cap_watts: float) -> float:
        """The clock under a cap as a share of the clock without."""
        self._check(stage, cap_watts)
        if stage == "host":
            return 1.0
        above = self._free_watts(stage, tokens) - self.idle_watts
        allowed = cap_watts - self.idle_watts
        if above <= allowed:
            return 1.0
        return float(max((allowed / above) ** (1 / EXPONENT), LOWEST_CLOCK))

    def compute_share(self, stage: str, tokens: float) -> float:
        """Arithmetic's part of a pass over so many tokens, its attention aside."""
        if stage == "host":
            return 0.0
        if stage == "prefill":
            return 1.0
        curve = self._pass(stage).curve
        most = float(self.profile.most_tokens)
        token_s = (curve.at(most) - curve.at(most / 2)) / (most / 2)
        part = token_s * tokens / max(curve.at(tokens), 1e-12)
        return min(max(part, LEAST_SHARE), 1.0)

    def slowdown(self, stage: str, tokens: float, cap_watts: float) -> float:
        """How many times as long the stage takes under the cap, at least 1."""
        clock = self.clock(stage, tokens, cap_watts)
        return 1.0 + self.compute_share(stage, tokens) * (1.0 / clock - 1.0)

    def capped_pass(self, stage: str, cap_watts: float) -> PassCost:
        """The stage's pass under the cap.

        Its curve is slowed as `slowdown` says, arithmetic of attention with the clock of the
        largest pass. Reading the cache keeps its pace.
        """
        free = self._pass(stage)
        most = float(self.profile.most_tokens)
        slowest = 1.0 / self.clock(stage, most, cap_watts)
        return replace(
            free,
            curve=self._slowed(free.curve, stage, cap_watts),
            attended_s=slowest * free.attended_s,
        )

    def _slowed(self, curve: Curve, stage: str, cap_watts: float) -> Curve:
        """The curve times its slowdown: exact at every bend and jump, linear between."""
        most = float(self.profile.most_tokens)
        doubling = 2.0 ** np.arange(0, np.log2(max(most, 2.0)))
        at = sorted({*curve.knots, *curve.jumps_at, *self.profile.power.tokens, *doubling, most})
        just_above = [x * (1 + 1e-12) + 1e-12 for x in at]
        before = [curve.at(x) * self.slowdown(stage, x, cap_watts) for x in at]
        behind = [curve.at(x) * self.slowdown(stage, x, cap_watts) for x in just_above]
        slopes = np.maximum((np.array(before[1:]) - behind[:-1]) / np.diff(at), 0.0)
        beyond = curve.slopes_s[-1] / self.clock(stage, most, cap_watts)
        jumps = [
            (x, b - a) for x, a, b in zip(at, before, behind, strict=True) if x in curve.jumps_at
        ]
        return Curve(
            base_s=before[0],
            knots=tuple(at),
            slopes_s=(*slopes.tolist(), beyond),
            jumps_at=tuple(x for x, _ in jumps),
            jumps_s=tuple(height for _, height in jumps),
        )

    def _free_watts(self, stage: str, tokens: float) -> float:
        power, measured = self.profile.power, self._measured_watts(stage)
        return float(np.interp(tokens, power.tokens, power.watts)) if measured is None else measured

    def _measured_watts(self, stage: str) -> float | None:
        """What the stage draws whatever its size, where the profile knows it."""
        if stage == "verify":
            return None
        return self.profile.power.stages.get("prefill" if stage == "prefill" else "draft")

    def _pass(self, stage: str) -> PassCost:
        named: PassCost = getattr(self.profile, stage)
        return named

    def _check(self, stage: str, cap_watts: float) -> None:
        if stage not in STAGES:
            raise UserError(f"no stage is called {stage!r}; expected one of {', '.join(STAGES)}")
        if not cap_watts > self.idle_watts:
            raise UserError(
                f"a power cap of {cap_watts:g} W on {self.profile.identity.machine.processor}, "
                f"which draws {self.idle_watts:.0f} W with nothing to do; give a cap above that"
            )


def capped(profile: HardwareProfile, cap_watts: float) -> HardwareProfile:
    """The profile as it is under a cap on the power of all its cards together.

    A cap above all that is drawn changes nothing. Raises UserError for one that idling breaks.
    """
    stages = StagePower(profile)
    stages.watts("verify", 1, cap_watts)  # refuses a cap that cannot be kept
    power = profile.power
    if cap_watts >= max([*power.watts, *power.stages.values()]):
        return profile
    rule = f"{cap_watts:g} W: engine/profile/power_model.py on what "
    origins = {
        part: Origin("modelled", rule + f"was {profile.origin(part).kind}")
        for part in ("verify", "draft", "prefill", "power")
    }
    return replace(
        profile,
        prefill=stages.capped_pass("prefill", cap_watts),
        draft_first=stages.capped_pass("draft_first", cap_watts),
        draft_next=stages.capped_pass("draft_next", cap_watts),
        verify=stages.capped_pass("verify", cap_watts),
        power=replace(
            power,
            watts=tuple(stages.watts("verify", n, cap_watts) for n in power.tokens),
            stages={
                "draft": stages.watts("draft_next", 1, cap_watts),
                "prefill": stages.watts("prefill", max(power.tokens), cap_watts),
            },
            idle_watts=stages.idle_watts,
            limit_watts=min(cap_watts, power.limit_watts or cap_watts),
        ),
        origins={**profile.origins, **origins},
    )
