"""Tensors of a checkpoint folder: read from safetensors, sharded or not, and held against shapes.

Which tensors a network needs is said by its configuration; pickled draft heads are
`models.head_checkpoint`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.decoder_config import Shapes
from models.errors import UserError

INDEX = "model.safetensors.index.json"
# Old Llama checkpoints hold the rotary frequencies, which follow from config.json.
DERIVED = "rotary_emb.inv_freq"


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files.

    With an index, exactly the shards that it names are read; next to them a folder may hold the
    same weights once more in another layout. Raises UserError for a damaged or missing file.
    """
    tensors: dict[str, Tensor] = {}
    for file in _files(folder):
        try:
            tensors.update(load_file(file))
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or cut short ({error}); fetch it again") from error
    return tensors


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UserError(f"{index} is damaged ({error!r}); fetch it again") from error
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise UserError(
                f"{folder} lacks {', '.join(missing)}, which {INDEX} names; fetch the missing files"
            )
        return [folder / name for name in names]
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} holds no safetensors weights; expected model.safetensors, or shards with "
            f"{INDEX}"
        )
    return files


def check_tensors(
    folder: Path,
    tensors: Mapping[str, Tensor],
    required: Shapes,
    optional: Shapes | None = None,
) -> None:
    """Raises one UserError that lists every tensor that is missing, unexpected or unusable."""
    allowed = required | (optional or {})
    differences = [
        f"{name} is missing, expected {list(shape)}"
        for name, shape in required.items()
        if name not in tensors
    ]
    for name, tensor in tensors.items():
        got = list(tensor.shape)
        if name not in allowed:
            if not name.endswith(DERIVED):
                differences.append(f"{name} {got} is not expected")
        elif tuple(got) != allowed[name]:
            differences.append(f"{name} is {got}, expected {list(allowed[name])}")
        elif tensor.is_floating_point() and not tensor.isfinite().all():
            differences.append(f"{name} holds numbers that are not finite")
    if differences:
        raise UserError(
            f"{folder}: the weights do not fit config.json, {len(differences)} differences: "
            f"{'; '.join(differences)}; give a folder whose weights and config.json belong together"
        )
