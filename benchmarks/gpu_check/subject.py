"""What is checked: a device, a small pair of networks and a large one, made when first asked for.

On a card the small pair is SmolLM2, its weights where the cache has them and random ones of its
shapes elsewhere, and the large one has the shapes of an 8B Llama and its EAGLE-3 head. `tiny`
stands tiny networks in for both, so that a processor can run every section.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from benchmarks.gpu_check.frame import reason
from benchmarks.gpu_check.one_pass import Heads, run_once
from engine.protocol import Limits
from engine.serving import LiveConfig, LiveServer
from engine.tiny import tiny_server
from models.attention_choice import resolve_attention
from models.errors import UserError
from models.flashinfer_attention import import_flashinfer
from models.model_cache import cache_root, is_complete
from models.random_weights import CPU, pair_of, random_decoder, random_head
from models.registry import entries

SMALL, LARGE = "smollm2-135m-instruct", "llama-3.1-8b-instruct"
CAPACITY_TOKENS, TINY_CAPACITY_TOKENS = 1024, 256
REFERENCE_SLOTS = 8
BATCHES, TINY_BATCHES = (1, 8, 32, 64), (1, 4)
TINY_LIMITS = Limits(slots=4, max_depth=6, max_width=8, max_nodes=32)
Key = tuple[str, torch.dtype, str, str]
COMPILES = "it takes nvcc, or the package flashinfer-jit-cache instead"


def heads_of(name: str) -> Heads:
    """Of a target; its draft head has the same."""
    target = pair_of(name).target
    return Heads(target.heads, target.kv_heads, target.head_dim)


@dataclass
class Subject:
    """Networks on one device; every server is made once. Close it, or meters read on."""

    device: torch.device
    tiny: bool = False
    out: Path | None = None
    """Where sections leave files beside the report."""
    makes: frozenset[str] = frozenset(("small", "large", "reference"))
    """What the section `servers` makes ahead; everything else is made when it is asked for."""
    servers: dict[Key, LiveServer] = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """Of all servers."""
        return TINY_LIMITS if self.tiny else Limits(slots=max(BATCHES))

    @property
    def batches(self) -> tuple[int, ...]:
        """Requests that decode together."""
        return TINY_BATCHES if self.tiny else BATCHES

    @property
    def dtype(self) -> torch.dtype:
        """Of what is timed."""
        return torch.float32 if self.device.type == "cpu" else torch.bfloat16

    @cached_property
    def lacking(self) -> str:
        """Why FlashInfer does not run on the device, "" where it does.

        It is run once, and compiled if it never was.
        """
        try:
            run_once(import_flashinfer(), heads_of(SMALL), self.dtype, self.device)
        except UserError as error:
            return str(error)
        except Exception as error:  # a compiler's, a driver's, a kernel's: the rest is checked
            return f"it does not run ({reason(error)}); to compile its kernels {COMPILES}"
        return ""

    @cached_property
    def has_weights(self) -> bool:
        """Whether the cache holds SmolLM2; nothing is fetched for a check."""
        entry = entries()[SMALL]
        return is_complete(cache_root() / "models" / entry.name, entry.origin())

    @property
    def names(self) -> dict[str, str]:
        """What stands for the small and the large pair, for people."""
        if self.tiny:
            return {"small": "a tiny network", "large": "another tiny network"}
        weights = "its weights" if self.has_weights else "random weights"
        return {"small": f"{SMALL} ({weights})", "large": f"{LARGE} (random weights)"}

    @property
    def small(self) -> LiveServer:
        """The small pair as it is timed."""
        return self.small_in(self.dtype, self.device)

    @property
    def large(self) -> LiveServer:
        """The large pair as it is timed."""
        return self.server("large", self.dtype, self.device)

    def small_in(self, dtype: torch.dtype, device: torch.device) -> LiveServer:
        """The small pair in `dtype` on `device`: the same weights, rounded."""
        return self.server("small", dtype, device)

    def close(self) -> None:
        """Give networks and meters up."""
        for server in self.servers.values():
            server.close()
        self.servers.clear()

    def attention(self, dtype: torch.dtype, device: torch.device) -> str:
        """FlashInfer's where it serves and can be had, else plain, so that the rest is checked."""
        name = resolve_attention("auto", dtype, device)
        return "plain" if name == "flashinfer" and self.lacking else name

    def server(self, size: str, dtype: torch.dtype, device: torch.device) -> LiveServer:
        """The "small" or "large" pair, made if it never was."""
        attention = self.attention(dtype, device)
        key = size, dtype, device.type, attention
        if key not in self.servers:
            self.servers[key] = self._make(size, dtype, device, attention)
        return self.servers[key]

    def _make(
        self, size: str, dtype: torch.dtype, device: torch.device, attention: str
    ) -> LiveServer:
        format_name = str(dtype).removeprefix("torch.")
        limits = self.limits
        if device.type != self.device.type:  # the CPU's reference, too slow for all of them
            limits = limits._replace(slots=min(REFERENCE_SLOTS, limits.slots))
        if self.tiny:
            return tiny_server(
                seed=0 if size == "small" else 1,
                dtype=format_name,
                limits=limits,
                capacity_tokens=TINY_CAPACITY_TOKENS,
                device=device.type,
            )
        if size == "small" and self.has_weights:
            return LiveServer.load(
                LiveConfig(
                    SMALL,
                    dtype=format_name,
                    slots=limits.slots,
                    capacity_tokens=CAPACITY_TOKENS,
                    attention=attention,
                    device=device.type,
                )
            )
        shapes = pair_of(SMALL if size == "small" else LARGE)
        # The large pair is drawn where it runs: sixteen gigabytes are not for sending.
        drawn_on = CPU if size == "small" else None
        target = random_decoder(shapes.target, dtype, device, drawn_on=drawn_on)
        head = random_head(shapes.head, target, dtype, drawn_on=drawn_on)
        return LiveServer(
            target, head, None, limits, CAPACITY_TOKENS, self.names[size], attention=attention
        )
