"""Rebuilds the Hugging Face tokenizer files from what a GGUF file declares.

transformers 5.24's own conversion keeps only the byte-level step and drops the digit splitting
that the `smollm` pre-tokenizer stands for, so 2 % of prompts came out differently. The files
written here follow the declaration. Loading and using them is models/tokenizer.py's job.
"""

import json
from typing import Any

from models.errors import UserError

CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL
SUPPORTED_PRE_TOKENIZERS = ("smollm",)


def tokenizer_files(fields: dict[str, Any], context_tokens: int) -> dict[str, str]:
    """The texts of tokenizer.json and tokenizer_config.json, by file name.

    `fields` maps GGUF metadata keys to their Python values. Raises UserError when the file
    declares a tokenizer other than byte-level BPE with a known pre-tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    model, pre = fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in SUPPORTED_PRE_TOKENIZERS:
        raise UserError(
            f"The GGUF file declares the tokenizer {model!r} with pre-tokenizer {pre!r}, but only "
            f"'gpt2' with one of {', '.join(SUPPORTED_PRE_TOKENIZERS)} is read; give a folder in "
            f"Hugging Face format instead."
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types: list[int] = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in control]
    )

    def named(role: str) -> str:
        return tokens[fields[f"tokenizer.ggml.{role}_token_id"]]

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named("bos"),
        "eos_token": named("eos"),
        "unk_token": named("unknown"),
        "pad_token": named("padding"),
        "additional_special_tokens": control,
        "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_tokens,
        "chat_template": fields["tokenizer.chat_template"],
    }
    return {
        "tokenizer.json": tokenizer.to_str(pretty=False),
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
    }
