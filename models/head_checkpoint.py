"""Tensors of a public EAGLE-3 checkpoint, under one set of names and safe to read.

The formats name the same tensors differently, some ship the embedding, some only a pickled file.
What is read here fits `models.head_config`, or one error lists all in which it does not.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoint import check_tensors, read_tensors
from models.errors import UserError
from models.head_config import DraftHeadConfig
from models.head_source import PICKLED

EMBEDDING = "embed_tokens.weight"
# The flat format's own names, and what speculators and older exports say instead.
RENAMED = (
    ("layers.0.", "midlayer."),
    ("aux_norm_low.", "fc_norm.0."),
    ("aux_norm_mid.", "fc_norm.1."),
    ("aux_norm_high.", "fc_norm.2."),
)


def read_head(
    folder: Path, config: DraftHeadConfig, target_embedding: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Weights of a head under the flat format's names, and the embedding that it uses.

    The embedding [vocabulary, h] is the checkpoint's own where it holds another than the target's,
    on the target's device; the weights are on the host.
    Raises UserError when the head is not for this target, and one that lists every missing,
    unexpected or misshapen tensor.
    """
    if target_embedding.shape != (config.vocab_size, config.feature_size):
        raise UserError(
            f"{folder}: the head is for a target of {config.vocab_size} tokens and width "
            f"{config.feature_size}, got {tuple(target_embedding.shape)}; use the head of this "
            "target"
        )
    tensors = _named_flat(folder, _read(folder))
    required = config.tensor_shapes()
    if config.feature_size != config.hidden_size:
        # The target's embedding is too wide or too narrow to stand in.
        required[EMBEDDING] = config.optional_shapes()[EMBEDDING]
    check_tensors(folder, tensors, required, config.optional_shapes())
    if "d2t" in tensors:
        _check_vocabulary(folder, tensors["d2t"], config.vocab_size)
    own = tensors.pop(EMBEDDING, None)
    if own is None or _same(own, target_embedding):
        return tensors, target_embedding
    return tensors, own.to(target_embedding)


def target_ids(d2t: Tensor | None, draft_vocab_size: int) -> Tensor:
    """Target id of every draft id [draft_vocab], where d2t is; it holds offsets, or is None."""
    ids = torch.arange(draft_vocab_size, device=None if d2t is None else d2t.device)
    return ids if d2t is None else ids + d2t


def _read(folder: Path) -> dict[str, Tensor]:
    """Tensors of the safetensors files, or of `pytorch_model.bin` where there are none."""
    pickled = folder / PICKLED
    if any(folder.glob("*.safetensors")) or not pickled.is_file():
        return read_tensors(folder)
    try:
        # Of what a pickle can do, this allows tensors in plain containers and refuses all else.
        loaded = torch.load(pickled, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{pickled} cannot be read as tensors alone and is refused, since a pickled file can "
            "run code; use a checkpoint in safetensors"
        ) from error
    except (RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"{pickled} is damaged or cut short ({error}); fetch it again") from error
    if not isinstance(loaded, dict) or not all(isinstance(t, Tensor) for t in loaded.values()):
        raise UserError(
            f"{pickled} holds no plain table of tensors, expected a state dict; use a checkpoint "
            "in safetensors"
        )
    return loaded


def _named_flat(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        flat = name.removeprefix("model.")
        for old, new in RENAMED:
            if flat.startswith(old):
                flat = new + flat.removeprefix(old)
        if flat in named:
            raise UserError(
                f"{folder} holds {flat} twice, once as {name}; give a checkpoint in one format"
            )
        named[flat] = tensor
    return named


def _check_vocabulary(folder: Path, d2t: Tensor, vocab_size: int) -> None:
    """Draft tokens must be distinct tokens of the target: verification counts on it."""
    if d2t.is_floating_point() or d2t.dtype == torch.bool:
        raise UserError(f"{folder}: d2t holds {d2t.dtype}, expected offsets as integers")
    ids = target_ids(d2t, len(d2t))
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or len(ids.unique()) < len(ids):
        raise UserError(
            f"{folder}: draft id + d2t gives the target ids {int(ids.min())} to {int(ids.max())}, "
            f"{len(ids.unique())} different ones of {len(ids)}; expected different ids below "
            f"{vocab_size}: d2t must hold offsets"
        )


def _same(own: Tensor, target: Tensor) -> bool:
    """Whether a checkpoint's embedding is the target's, which is then kept once in memory."""
    return own.shape == target.shape and torch.equal(own.to(target), target)
