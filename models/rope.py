"""Rotary positions as a `config.json` states them: the base and, since Llama 3.1, a scaling.

The tables of angles are `models.layers.rotary_tables`. Nothing here needs torch to be imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.config_file import require_keys
from models.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_BASE = 10_000.0


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's longer context: slow rotations are slowed by `factor`, fast ones are kept.

    Field names are those of `config.json`. A rotation is slow when it turns fewer than
    `low_freq_factor` times over the original context, fast when more than `high_freq_factor`
    times; in between the two are mixed linearly (rope_type "llama3" of transformers).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def scale(self, inverse: Tensor) -> Tensor:
        """Inverse frequencies [head_dim / 2] of the unscaled embedding to the scaled ones."""
        # In the order of transformers' operations: parity is to the last rounding.
        turns = self.original_max_position_embeddings / (2 * math.pi / inverse)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = kept.clamp(0, 1)
        return (1 - kept) * inverse / self.factor + kept * inverse

    def to_config(self) -> dict[str, Any]:
        """What `config.json` says of it."""
        return {"rope_type": "llama3", **asdict(self)}


def read_rope(raw: Mapping[str, Any], folder: Path) -> tuple[float, Llama3Scaling | None]:
    """Base and scaling of the configuration `raw`; a base that is not stated is 10,000.

    Reads `rope_theta` with `rope_scaling` (transformers 4) and `rope_parameters` (5). Raises
    UserError for another kind of scaling; `folder` is for its message.
    """
    stated = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    base = float(raw.get("rope_theta") or stated.get("rope_theta") or DEFAULT_BASE)
    kind = stated.get("rope_type") or stated.get("type") or "default"
    if kind == "default":
        return base, None
    if kind != "llama3":
        raise UserError(
            f"{folder}: rope_type is {kind!r}, only 'default' and 'llama3' are served yet"
        )
    names = Llama3Scaling.__dataclass_fields__
    require_keys(folder, stated, names, "model with llama3 rope scaling")
    return base, Llama3Scaling(**{name: stated[name] for name in names})
