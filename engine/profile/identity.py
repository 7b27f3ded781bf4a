"""What a profile is of: machine, threads, number format, target and drafter.

Step times hang on each of these, so a profile serves a set-up that is the same in all of them. A
draft network is told by its shape, since what it has learned costs no time: a head that is trained
anew keeps its profile.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from engine.profile.machine import Machine

if TYPE_CHECKING:
    from models.decoder_config import DecoderConfig
    from models.head_config import DraftHeadConfig

NO_NETWORK = "none"


@dataclass(frozen=True)
class Identity:
    """A set-up whose steps are timed. All but `source` must agree for a profile to hold."""

    machine: Machine
    threads: int
    model: str
    """The target, by the name or path that it was asked for."""
    dtype: str
    drafter: str
    """eagle3, model or prompt-lookup."""
    network: str
    """The drafter's network, see `network_label`."""
    source: str = field(default="", compare=False)
    """What was given as draft head or draft model, "" for the registry's own."""

    @property
    def digest(self) -> str:
        """Twelve hex digits that are the same for the same set-up."""
        text = "|".join(str(getattr(self, f.name)) for f in fields(self) if f.compare)
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
        words += ["--threads", str(self.threads)]
        if self.drafter != "eagle3":
            words += ["--drafter", self.drafter]
        if self.source:
            words += ["--draft-head" if self.drafter == "eagle3" else "--draft-model", self.source]
        return shlex.join(words)


def network_label(config: DraftHeadConfig | DecoderConfig | None) -> str:
    """The width of a draft network and eight hex digits of its whole shape; "none" for None."""
    if config is None:
        return NO_NETWORK
    digest = hashlib.sha256(repr(config).encode()).hexdigest()[:8]
    return f"{config.hidden_size} wide ({digest})"
