"""Ordinary decoding here over llama.cpp's, on the same weights at 16 bit, batch 1.

llama.cpp is no dependency: `pip install llama-cpp-python==0.3.36` builds it in some minutes, and
without it the figure is not measured. The weights are those of the target's folder, written as
bfloat16 into a temporary GGUF file, so that both sides read the same numbers.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.speed import WARM_TOKENS, ordinary_over, split_prompts
from models.decoder import read_tensors
from models.gguf_convert import BLOCK_NAMES, OUTER_NAMES
from models.registry import resolve

CONTEXT = 1024


def plain(bench: Bench, sets: str) -> Result:
    """Tokens per second of ours over theirs, both without prefill, in turns."""
    try:
        from llama_cpp import Llama  # type: ignore[import-not-found]
    except ImportError as error:
        raise UnmeasuredError(
            "llama.cpp is not installed; `pip install llama-cpp-python==0.3.36` builds it"
        ) from error
    import torch

    each = 1 if bench.quick else 4
    prompts = [p for _, p in split_prompts(bench, sets.split(), each, 0)[0]]
    folder = resolve(bench.server.name)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "target.gguf"
        write_gguf(folder, path)
        llama = Llama(
            str(path), n_ctx=CONTEXT, n_threads=torch.get_num_threads(),
            n_threads_batch=torch.get_num_threads(), logits_all=False, verbose=False,
        )  # fmt: skip

        def answer(prompt: list[int], tokens: int) -> tuple[float, list[int]]:
            llama.reset()
            stream = llama.generate(prompt, temp=0.0, repeat_penalty=1.0)
            tokens_out = [int(next(stream))]
            begun = perf_counter()
            tokens_out += [int(next(stream)) for _ in range(tokens)]
            return perf_counter() - begun, tokens_out

        answer(prompts[0], WARM_TOKENS)
        return ordinary_over(bench, "llama_cpp", prompts, answer)


def permute(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of Q or K [heads * head_dim, width] in GGUF's order: pairs stand side by side."""
    rows, width = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, width)
    return halves.swapaxes(1, 2).reshape(rows, width)


def write_gguf(folder: Path, path: Path) -> None:
    """The Llama-family weights of a Hugging Face folder as a bfloat16 GGUF file.

    The file names its tokens by number: only ids go in and come out here.
    """
    import torch
    from gguf import GGMLQuantizationType, GGUFWriter

    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    writer.add_token_merges(["<0> <1>"])
    outer = {ours: theirs for theirs, ours in OUTER_NAMES.items()}
    blocks = {ours: theirs for theirs, ours in BLOCK_NAMES.items()}
    for name, tensor in read_tensors(folder).items():
        if name in outer:
            gguf_name = outer[name]
        else:
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            gguf_name = f"blk.{layer}.{blocks[part]}.weight"
        if tensor.ndim == 1:  # norms are read as float32
            writer.add_tensor(gguf_name, tensor.float().numpy())
            continue
        bits = tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy().view(np.uint16)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            bits = permute(bits, heads if "q_proj" in name else kv_heads)
        writer.add_tensor(
            gguf_name, np.ascontiguousarray(bits).view(np.uint8),
            raw_dtype=GGMLQuantizationType.BF16,
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
