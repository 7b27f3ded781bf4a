"""Writes a GGUF file of a one-layer Llama, for tests of what reads such files."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WIDTH, HEADS, KV_HEADS, FEED_FORWARD, VOCABULARY = 32, 4, 2, 64, 258
TENSORS = {
    "token_embd": (VOCABULARY, WIDTH),
    "output_norm": (WIDTH,),
    "blk.0.attn_q": (WIDTH, WIDTH),
    "blk.0.attn_k": (WIDTH * KV_HEADS // HEADS, WIDTH),
    "blk.0.attn_v": (WIDTH * KV_HEADS // HEADS, WIDTH),
    "blk.0.attn_output": (WIDTH, WIDTH),
    "blk.0.ffn_gate": (FEED_FORWARD, WIDTH),
    "blk.0.ffn_up": (FEED_FORWARD, WIDTH),
    "blk.0.ffn_down": (WIDTH, FEED_FORWARD),
    "blk.0.attn_norm": (WIDTH,),
    "blk.0.ffn_norm": (WIDTH,),
}


def permute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp's own reordering (convert_hf_to_gguf.py), the inverse of what is tested."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_tiny_gguf(path: Path, architecture: str = "llama", extra: str | None = None) -> None:
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    from tokenizers.pre_tokenizers import ByteLevel

    writer.add_token_list(["<end>", *sorted(ByteLevel.alphabet()), "ab"])
    writer.add_token_types([3] + [1] * 257)
    writer.add_token_merges(["a b"])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id):
        add(0)
    writer.add_pad_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}<end>{% endfor %}")
    for name, shape in TENSORS.items():
        values = rng.normal(size=shape).astype(np.float32)
        heads = {"blk.0.attn_q": HEADS, "blk.0.attn_k": KV_HEADS}.get(name)
        writer.add_tensor(f"{name}.weight", values if heads is None else permute(values, heads))
    if extra:
        writer.add_tensor(extra, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
