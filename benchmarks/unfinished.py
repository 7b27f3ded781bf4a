"""What a measurement of hours has so far, beside the results: one that was cut goes on from there.

Only where the same is measured: what it was measured with stands in the file, and must be equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.atomic_write import write_atomic


@dataclass(frozen=True)
class Unfinished:
    """One measurement's file."""

    path: Path
    made_with: dict[str, Any]
    """JSON types only; another value begins anew."""

    def load(self) -> Any:
        """What was saved last; None where nothing was, or it was measured with something else."""
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(saved, dict) or saved.get("made_with") != self.made_with:
            return None
        return saved["so_far"]

    def save(self, so_far: Any) -> None:
        """Write it, JSON types only, in place of what was there."""
        text = json.dumps({"made_with": self.made_with, "so_far": so_far}, indent=1)
        write_atomic(self.path, text + "\n")

    def forget(self) -> None:
        """It is done."""
        self.path.unlink(missing_ok=True)
