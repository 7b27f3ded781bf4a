"""From an attention's name to the attention: which there are and what each asks for."""

from __future__ import annotations

import torch

from models import flashinfer_interpreter
from models.attention import AttentionBackend, PlainAttention
from models.errors import UserError
from models.flashinfer_attention import FlashInferAttention, import_flashinfer

ATTENTIONS = ("auto", "plain", "flashinfer", "interpreter")
FLASHINFER_DTYPES = (torch.float16, torch.bfloat16)


def resolve_attention(name: str, dtype: torch.dtype, device: torch.device) -> str:
    """The attention that `name` means for a network in `dtype` on `device`: any but "auto".

    "auto" is FlashInfer's on a GPU where the numbers have 16 bits, and the plain one elsewhere; the
    interpreter computes on the CPU what FlashInfer would. Raises UserError for an unknown name, and
    where the attention does not serve such a network.
    """
    if name not in ATTENTIONS:
        raise UserError(f"no attention is called {name!r}; known are {', '.join(ATTENTIONS)}")
    served = device.type == "cuda" and dtype in FLASHINFER_DTYPES
    if name == "auto":
        return "flashinfer" if served else "plain"
    if name == "interpreter" and device.type != "cpu":
        raise UserError(f"the interpreter is for the CPU, not {device.type}; choose flashinfer")
    if name == "flashinfer" and not served:
        raise UserError(
            "FlashInfer attention needs a network in float16 or bfloat16 on an NVIDIA GPU, this "
            f"one is in {str(dtype).removeprefix('torch.')} on {device.type}; choose attention "
            "auto, or interpreter to try the same calls on a CPU"
        )
    return name


def choose_attention(name: str, dtype: torch.dtype, device: torch.device) -> AttentionBackend:
    """The attention called `name` for one network in `dtype` on `device`.

    Raises UserError as `resolve_attention` does, and where FlashInfer cannot be had.
    """
    name = resolve_attention(name, dtype, device)
    if name == "plain":
        return PlainAttention()
    if name == "interpreter":
        return FlashInferAttention(flashinfer_interpreter, device, workspace_bytes=16)
    return FlashInferAttention(import_flashinfer(), device)
