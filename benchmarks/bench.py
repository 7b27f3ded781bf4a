"""What a measurement is given: server, prompts, reference, and how thorough to be.

Everything is made when first asked for, so that a figure pays only for what it needs; a test
hands in a tiny server and made-up prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures import Row, UnmeasuredError

if TYPE_CHECKING:
    from benchmarks.fresh_clone import Clones
    from engine.profile.hardware_profile import HardwareProfile
    from engine.serving import LiveServer

Prompts = list[list[int]]
# prompt [T] and count to the tokens generated after it, greedy, never stopping early
Generate = Callable[[list[int], int], list[int]]


def _silent(words: str) -> None:
    pass


@dataclass
class Bench:
    """Handed to every figure's function."""

    load_server: Callable[[], LiveServer]
    load_prompts: Callable[[str, LiveServer], Prompts]
    load_transformers: Callable[[LiveServer], Any]
    clones: Clones
    quick: bool = False
    say: Callable[[str], None] = _silent
    """Told now and then how far a measurement is."""
    rows: Mapping[str, Row] = field(default_factory=dict)
    """What was measured before, for figures made of others."""
    unfinished: Path | None = None
    """Folder where a measurement of hours keeps what it has so far; none: it keeps nothing."""

    @cached_property
    def server(self) -> LiveServer:
        """The networks, loaded once for all figures."""
        self.say("loading the model")
        return self.load_server()

    def close(self) -> None:
        """Remove clones and close the server, if there are any."""
        self.clones.close()
        if "server" in vars(self):
            self.server.close()

    @cached_property
    def profile(self) -> HardwareProfile:
        """What steps cost here, measured once for all figures."""
        from benchmarks.prediction import measure_profile

        return measure_profile(self)

    def prompts(self, name: str, at_least: int = 1) -> Prompts:
        """Prompts of a set as ids; UnmeasuredError when there are too few."""
        found = self.load_prompts(name, self.server)
        if len(found) < at_least:
            raise UnmeasuredError(f"{name} has {len(found)} prompts, expected at least {at_least}")
        return found

    @property
    def stop_ids(self) -> frozenset[int]:
        """What ends an answer; nothing where there is no tokenizer."""
        tokenizer = self.server.tokenizer
        return frozenset() if tokenizer is None else frozenset({tokenizer.eos_id})

    def rng(self) -> np.random.Generator:
        """For the intervals: the same draws for every figure and run."""
        return np.random.default_rng(0)


def transformers_model(folder: Path, server: LiveServer) -> Any:
    """The same weights in transformers, in the dtype that the engine chose, set to be greedy."""
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=server.decoder.dtype).eval()
    # Without an end token nothing stops early and no processor has to hold it back.
    model.generation_config = GenerationConfig(do_sample=False, use_cache=True, pad_token_id=0)
    return model


def transformers_reference(model: Any) -> Generate:
    """`generate` of that model."""
    import torch

    @torch.inference_mode()
    def generate(prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=count, max_new_tokens=count
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    return generate
