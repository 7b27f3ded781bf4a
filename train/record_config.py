"""What `record.py` may be told. Light on imports, since `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.errors import UserError
from engine.replay.recipe import Recipe


@dataclass(frozen=True)
class RecordConfig:
    """Record a model pair's texts and draft trees, so that replay can serve them without it.

    Repeat a command that was stopped: it goes on where it was.
    """

    out: Path
    """Folder of the recording."""
    texts: Recipe = field(default_factory=Recipe)
    model: str = "smollm2-135m-instruct"
    """Target: a registered name or a folder in Hugging Face format."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; none: the registered head of the model."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Number format: float32 is exact enough to be compared with the live engine."""
    threads: int = 0
    """Cores for the networks; 0: all of them."""

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        self.texts.check()
        if self.threads < 0:
            raise UserError(f"--threads {self.threads}: expected a number of at least 0")
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file; name a folder")
