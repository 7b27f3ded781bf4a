"""Tables for people: which profiles there are, what each knows, and where it knows it from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.profile.hardware_profile import HardwareProfile

if TYPE_CHECKING:
    from rich.console import Console

PARTS = ("verify", "draft", "prefill", "host", "power", "memory")
STEP_TOKENS = (1, 16, 64, 256)


def step_ms(profile: HardwareProfile, tokens: int, context_tokens: float = 0.0) -> float:
    """One request's verification of so many tokens, and the host's part of the step."""
    verify_s = profile.verify.at(tokens, context_tokens, 1)
    return 1e3 * (verify_s + profile.host.at(tokens, context_tokens, 1))


def print_list(profiles: dict[str, HardwareProfile], console: Console) -> None:
    """One row a profile: step times without context, power, room in the cache, origins."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("profile")
    for tokens in STEP_TOKENS:
        table.add_column(f"{tokens} tok", justify="right")
    for heading in ("draft step", "W", "KV tokens"):
        table.add_column(heading, justify="right")
    for part in PARTS:
        table.add_column(part)
    for name, profile in profiles.items():
        watts = f"{min(profile.power.watts):.0f}-{max(profile.power.watts):.0f}"
        table.add_row(
            name,
            *(f"{step_ms(profile, tokens):.1f}" for tokens in STEP_TOKENS),
            f"{1e3 * profile.draft_next.at(1, 0, 1):.1f}",
            watts,
            kv_room(profile),
            *(profile.origin(part).kind for part in PARTS),
        )
    console.print(table)
    console.print("times in ms: verification and host, one request, no context before it")


def print_one(name: str, profile: HardwareProfile, console: Console) -> None:
    """All of one profile: its set-up, times, power and memory, with each part's source."""
    of = profile.identity
    console.print(f"profile     {name}")
    console.print(f"machine     {of.machine.processor}")
    console.print(f"model       {of.model} ({of.dtype}), drafter {of.drafter}")
    sizes = [n for n in (1, 16, 64, 128, 256, 512, 1024, 2048, 4096) if n <= profile.most_tokens]
    times = "  ".join(f"{n}: {step_ms(profile, n):.1f}" for n in sizes)
    console.print(f"step        {times} (ms by verified tokens)")
    console.print(f"stairs      {stairs(profile) or 'none'}")
    memory = profile.memory
    console.print(
        f"memory      weights {memory.resident_bytes / 2**30:.1f} of "
        f"{memory.device_bytes / 2**30:.0f} GiB, KV {memory.kv_bytes_per_token / 1024:.0f} KiB a "
        f"token, room for {kv_room(profile)} tokens"
    )
    power = profile.power
    watts = "  ".join(f"{n:.0f}: {w:.0f}" for n, w in zip(power.tokens, power.watts, strict=True))
    console.print(f"power       {watts} (W by tokens), idle {power.idle_watts:.0f}")
    console.print(f"trusted     up to {profile.most_tokens} verified tokens, and three times that")
    for part in PARTS:
        origin = profile.origin(part)
        console.print(f"{part:<10}  {origin.kind}: {origin.source}")


def kv_room(profile: HardwareProfile) -> str:
    """Tokens that fit in the card's memory; "?" where it is not known."""
    try:
        return f"{profile.kv_pool_tokens():,}"
    except UserError:
        return "?"


def stairs(profile: HardwareProfile, least: float = 0.05) -> str:
    """Jumps of the verification by at least that share of the time before them."""
    curve = profile.verify.curve
    steps: Sequence[tuple[float, float]] = [
        (at, height / curve.at(at))
        for at, height in zip(curve.jumps_at, curve.jumps_s, strict=True)
        if height >= least * curve.at(at)
    ]
    return "  ".join(f"behind {at:.0f}: +{rise:.0%}" for at, rise in steps)
