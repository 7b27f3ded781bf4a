"""Turns a Llama-family GGUF file into a folder in Hugging Face format, once.

Weights are dequantized to float32 with the `gguf` package and stored as bfloat16. The tokenizer
part is models/gguf_tokenizer.py; where the file comes from, and that the folder appears whole or
not at all, is models/model_cache.py.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import UserError
from models.gguf_tokenizer import tokenizer_files

BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def huggingface_name(gguf_name: str) -> str:
    """Hugging Face's name of a GGUF tensor; UserError for one this decoder has no place for."""
    if gguf_name in OUTER_NAMES:
        return OUTER_NAMES[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in BLOCK_NAMES and parts[3] == "weight":
        return f"model.layers.{int(parts[1])}.{BLOCK_NAMES[parts[2]]}.weight"
    raise UserError(
        f"The GGUF file holds the tensor {gguf_name!r}, which a plain Llama decoder does not have; "
        f"give a model of the Llama family without biases or adapters."
    )


def unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's row order of Q and K, `[heads * head_dim, width]` in and out.

    GGUF stores the rows for interleaved RoPE (pairs 2i, 2i+1); Hugging Face rotates halves
    (pairs i, i + head_dim/2).
    """
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def model_config(fields: dict[str, Any], vocabulary: int, tied: bool) -> dict[str, Any]:
    """The config.json of a LlamaForCausalLM, from GGUF metadata."""

    def llama(key: str) -> Any:
        return fields[f"llama.{key}"]

    heads, width = llama("attention.head_count"), llama("embedding_length")
    theta = float(llama("rope.freq_base"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": llama("attention.head_count_kv"),
        "head_dim": width // heads,
        "max_position_embeddings": llama("context_length"),
        # stored as float32, so 1e-5 reads as 9.999999747e-06
        "rms_norm_eps": float(f"{llama('attention.layer_norm_rms_epsilon'):.6g}"),
        # transformers 5 reads rope_parameters, earlier versions and other readers rope_theta
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "dtype": "bfloat16",
        "use_cache": True,
    }


def write_bytes(path: Path, data: bytes) -> None:
    """Write one file; the single place where a full disk shows."""
    path.write_bytes(data)


def convert(gguf_path: Path, folder: Path, on_tensor: Callable[[int, int], None]) -> None:
    """Write config, weights, tokenizer and generation config of `gguf_path` into `folder`.

    `on_tensor(done, total)` is called after each tensor. Raises UserError for a file that is not
    GGUF or not of the Llama family, OSError when writing fails. Layout: shared/data/README.md §5.
    """
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from safetensors.torch import save

    try:
        reader = GGUFReader(gguf_path)
    except ValueError as error:
        raise UserError(
            f"{gguf_path} cannot be read as a GGUF file ({error}); fetch it again."
        ) from error
    fields = {key: field.contents() for key, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama":
        raise UserError(
            f"{gguf_path} holds a model of the family {fields.get('general.architecture')!r}; only "
            f"'llama' is supported, choose a model of that family."
        )
    permuted = {
        "attn_q.weight": fields["llama.attention.head_count"],
        "attn_k.weight": fields["llama.attention.head_count_kv"],
    }
    weights: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(reader.tensors, start=1):
        # gguf lists shapes innermost first
        shape = tuple(int(n) for n in reversed(tensor.shape))
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)
        heads = permuted.get(tensor.name.split(".", 2)[-1])
        if heads is not None:
            values = unpermute(values, heads)
        name = huggingface_name(tensor.name)
        weights[name] = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
        on_tensor(done, len(reader.tensors))

    vocabulary = weights["model.embed_tokens.weight"].shape[0]
    config = model_config(fields, vocabulary, tied="lm_head.weight" not in weights)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    texts = {
        "config.json": json.dumps(config, indent=2) + "\n",
        "generation_config.json": json.dumps(generation, indent=2) + "\n",
        **tokenizer_files(fields, config["max_position_embeddings"]),
    }
    for name, text in texts.items():
        write_bytes(folder / name, text.encode("utf-8"))
    # through bytes, not save_file: a full disk is then an OSError with its errno
    write_bytes(folder / "model.safetensors", save(weights, metadata={"format": "pt"}))
