"""The modelled clock: what each call of the replay backend costs by a hardware profile.

The engine loop reads it where it reads a stopwatch on a live machine, so accounting is the same.
Power and memory come from the same profile and are labelled as modelled.
"""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.nvml import CardReading
from engine.profile.cost_model import PassCost
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.power_model import StagePower
from engine.protocol import Limits
from engine.replay.effects import Effects
from engine.telemetry import Energy, Meter, PowerModel

# Beyond what was measured a curve goes on in its last slope; further than this it is a guess.
EXTRAPOLATION = 3.0
# A profile tells its median context alone; `engine.profile` measures up to 5.3 times that.
LONGEST_CONTEXT = 5.3
DRAFT_STAGES = ("draft_first", "draft_next")


def stage_power(profile: HardwareProfile) -> StagePower | None:
    """Watts by stage, None for a profile that knows them of whole steps alone."""
    return StagePower(profile) if profile.power.stages else None


class ModelledClock:
    """Seconds of work so far; reading it costs nothing and it never moves by itself."""

    def __init__(self, profile: HardwareProfile, effects: Effects | None = None) -> None:
        """A constant power cap is the profile's (`engine.profile.power_model.capped`), as its
        times are; `effects` are what goes wrong meanwhile.

        Where caps come and go, stages are told apart whatever the profile knows.
        """
        self.profile, self.power, self.effects = profile, stage_power(profile), effects
        if effects is not None and effects.has_caps:
            self.power = StagePower(profile)
        self.now_s = 0.0
        self.joules = 0.0
        """Of that work, each stage by its own watts; 0 where the profile does not know these."""

    def __call__(self) -> float:
        """The reading."""
        return self.now_s

    def prefill(self, tokens: int, context_tokens: int, ends_prompt: bool) -> None:
        """A prompt's chunk behind `context_tokens` of it."""
        self._spend("prefill", self.profile.prefill, tokens, context_tokens, int(ends_prompt))

    def draft_first(self, rows: int, kv_tokens: int, requests: int) -> None:
        """The first draft step: `rows` committed tokens that the drafter has not run yet."""
        self._spend("draft_first", self.profile.draft_first, rows, kv_tokens, requests)

    def draft_next(self, rows: int, kv_tokens: int, requests: int) -> None:
        """A further one over the beams of all requests, `rows` nodes in all."""
        self._spend("draft_next", self.profile.draft_next, rows, kv_tokens, requests)

    def verify(self, tokens: int, kv_tokens: int, requests: int) -> None:
        """The target's pass over kept nodes and roots."""
        self._spend("verify", self.profile.verify, tokens, kv_tokens, requests)

    def host(self, tokens: int, kv_tokens: int, requests: int) -> None:
        """The engine's own work of a step that verified so many tokens."""
        self._spend("host", self.profile.host, tokens, kv_tokens, requests)

    def _spend(
        self, stage: str, cost: PassCost, tokens: int, kv_tokens: int, requests: int
    ) -> None:
        power, factor = self.power, 1.0
        if self.effects is not None:
            if self.effects.has_caps:
                device = self.effects.device()
                cost, power = getattr(device.profile, stage), device.power
            if stage in DRAFT_STAGES:
                factor = self.effects.draft_time()
        seconds = factor * float(cost.at(tokens, kv_tokens, requests))
        self.now_s += seconds
        if power is not None:
            self.joules += power.joules(stage, tokens, seconds)


class ProfileMeter(Meter):
    """Energy of iterations by the profile: never measured on replay.

    Every stage draws its own watts, and what is left of an iteration, the controller's time, those
    of an idle device. A profile that knows no stages has one curve for whole steps, by the mean
    tokens of their passes.
    """

    is_measured = False
    card: CardReading | None = None

    def __init__(
        self,
        profile: HardwareProfile,
        clock: ModelledClock | None = None,
        power_cap_watts: float | None = None,
    ) -> None:
        """`clock` is the episode's, which knows the stages; None takes whole steps.

        `power_cap_watts` is the constant cap, which the profile has in it already. Where no idle
        power is known the draw of the smallest step stands for it.
        """
        power = profile.power
        self.tokens, self.draw_watts = power.tokens, power.watts
        self._clock = clock if clock is not None and clock.power is not None else None
        idle_watts = power.idle_watts or min(power.watts)
        if self._clock is not None and self._clock.power is not None:
            idle_watts = self._clock.power.idle_watts
        most_watts = max([idle_watts, *power.watts, *power.stages.values()])
        self.model = PowerModel(idle_watts=idle_watts, peak_watts=most_watts)
        self._constant_watts = float("inf") if power_cap_watts is None else power_cap_watts
        self._effects = None if clock is None else clock.effects
        self._before = 0.0, 0.0  # joules and seconds of the clock as the iteration began

    @property
    def cap_watts(self) -> float:
        """The cap that the device keeps to now, inf without one."""
        return self._constant_watts if self._effects is None else self._effects.cap_watts()

    def begin(self) -> None:
        """An iteration starts."""
        if self._clock is not None:
            self._before = self._clock.joules, self._clock.now_s

    def pause(self) -> None:
        """Nothing to read."""

    def resume(self) -> None:
        """Nothing to read."""

    def end(self, busy_s: float, tokens_per_pass: float) -> Energy:
        """Joules of the iteration that `begin` opened, and its mean watts over `busy_s` seconds."""
        if self._clock is None:
            watts = float(np.interp(tokens_per_pass, self.tokens, self.draw_watts))
            return Energy(watts * busy_s, watts, False)
        joules, seconds = self._clock.joules - self._before[0], self._clock.now_s - self._before[1]
        joules += self.model.idle_watts * max(busy_s - seconds, 0.0)
        return Energy(joules, joules / busy_s if busy_s > 0 else self.model.idle_watts, False)


def check_sizes(
    profile: HardwareProfile, limits: Limits, context_tokens: int = 0, prefill_tokens: int = 0
) -> None:
    """Raise UserError where a pass could lie too far beyond what was measured.

    A profile tells its largest verification and its median context, so these bound the rest: a
    chunk of a prompt is a pass of the same network as a verification; beams have fewer rows than
    the trees that are made of them. What a drafter catches up with is not bounded: prompts as long
    as contexts are, which were measured one at a time.
    """
    measured = (
        f"the hardware profile was measured up to {profile.most_tokens} and is trusted to "
        f"{EXTRAPOLATION:g} times that"
    )
    again = "measure larger batches (`python -m engine.profile` without --quick)"
    most = EXTRAPOLATION * profile.most_tokens
    largest = limits.slots * (limits.max_nodes + 1)
    if largest > most:
        raise UserError(
            f"{limits.slots} requests with trees of {limits.max_nodes} nodes verify up to "
            f"{largest} tokens in a step, but {measured}; serve fewer slots, or {again}"
        )
    if prefill_tokens > most:
        raise UserError(
            f"prompts are read up to {prefill_tokens} tokens at a time, but {measured}; lower "
            f"prefill_tokens, or {again}"
        )
    longest = EXTRAPOLATION * LONGEST_CONTEXT * profile.context_tokens
    if context_tokens > longest:
        raise UserError(
            f"requests may be {context_tokens} tokens long, but the hardware profile was measured "
            f"at contexts of {profile.context_tokens:.0f} tokens (median) and is trusted to "
            f"{longest:.0f}; lower capacity_tokens, or measure with longer prompts"
        )
