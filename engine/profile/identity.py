"""What a profile is of: machine, device, number format, attention, target and drafter.

Step times hang on each of these, so a profile serves a set-up that is the same in all of them. A
draft network is told by its shape, since what it has learned costs no time: a head that is trained
anew keeps its profile.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, field, fields
from typing import Protocol

from engine.profile.machine import Machine

NO_NETWORK = "none"


@dataclass(frozen=True)
class Identity:
    """A set-up whose steps are timed. All but `source` must agree for a profile to hold."""

    machine: Machine
    threads: int
    """CPU threads; 0 where the networks are on a card, whose times do not hang on them."""
    model: str
    """The target, by the name or path that it was asked for."""
    dtype: str
    drafter: str
    """eagle3, model or prompt-lookup."""
    network: str
    """The drafter's network, see `network_label`."""
    device: str = "cpu"
    """cpu or cuda; `machine` says which card."""
    attention: str = "plain"
    """plain, flashinfer or interpreter."""
    page_size: int | None = None
    """Tokens of a KV page, None for one page a request."""
    graphs: bool = False
    """Whether passes are replayed as CUDA graphs."""
    source: str = field(default="", compare=False)
    """What was given as draft head or draft model, "" for the registry's own."""

    @property
    def digest(self) -> str:
        """Twelve hex digits that are the same for the same set-up."""
        # A profile from before there were graphs is found where it lies.
        names = [f.name for f in fields(self) if f.compare and (f.name != "graphs" or self.graphs)]
        text = "|".join(str(getattr(self, name)) for name in names)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differences(self, here: Identity) -> list[str]:
        """Every way in which this set-up is not that of `here`, in words; [] when none."""
        return [
            f"{f.name} {getattr(self, f.name)}, here {getattr(here, f.name)}"
            for f in fields(self)
            if f.compare and getattr(self, f.name) != getattr(here, f.name)
        ]

    @property
    def command(self) -> str:
        """What to type to measure this set-up on its machine."""
        words = ["python", "-m", "engine.profile", "--model", self.model, "--dtype", self.dtype]
        words += ["--threads", str(self.threads), "--device", self.device]
        words += ["--attention", self.attention]
        if self.page_size is not None:
            words += ["--page-size", str(self.page_size)]
        if self.attention == "flashinfer" and not self.graphs:
            words.append("--no-graphs")
        if self.drafter != "eagle3":
            words += ["--drafter", self.drafter]
        if self.source:
            words += ["--draft-head" if self.drafter == "eagle3" else "--draft-model", self.source]
        return shlex.join(words)


class NetworkConfig(Protocol):
    """A network's shape: whatever its `repr` tells."""

    @property
    def hidden_size(self) -> int:
        """Width of its states."""
        ...


def network_label(config: NetworkConfig | None) -> str:
    """The width of a draft network and eight hex digits of its whole shape; "none" for None."""
    if config is None:
        return NO_NETWORK
    digest = hashlib.sha256(repr(config).encode()).hexdigest()[:8]
    return f"{config.hidden_size} wide ({digest})"
