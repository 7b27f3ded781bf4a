"""The generating half of `python -m models.distill`: run the generator until the time is up."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from models.decoder import Decoder
from models.distill.conversations import ConversationSource, read_prompts
from models.distill.generate import Generator
from models.distill.store import Sequence, SequenceStore
from models.registry import resolve
from models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from models.distill.__main__ import GenerateConfig

SHARD_SEQUENCES = 32


@torch.inference_mode()
def generate(config: GenerateConfig) -> None:
    """Add shards to `config.data` for `config.minutes`, or until Ctrl-C; what is done is kept."""
    torch.set_num_threads(config.threads)
    store = SequenceStore(config.data)
    folder = resolve(config.target)
    # Another start draws other conversations: the seed moves on with what is there already.
    seed = 1000 * config.seed + len(store.shards())
    source = ConversationSource(
        Tokenizer(folder),
        config.starters,
        read_prompts(config.prompts) if config.prompts else [],
        config.answer_tokens,
        np.random.default_rng(seed),
    )
    decoder = Decoder.from_folder(folder, torch.float32)
    generator = Generator(decoder, source, config.slots, seed)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: stopping.append(n))
    start = time.monotonic()
    finished: list[Sequence] = []
    answer_tokens = 0
    with Progress(
        TextColumn("generate"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    ) as progress:
        task = progress.add_task("", total=config.minutes * 60, note="")
        try:
            while (elapsed := time.monotonic() - start) < config.minutes * 60 and not stopping:
                for sequence in generator.step():
                    finished.append(sequence)
                    answer_tokens += len(sequence.features) - sequence.answer_start
                if len(finished) >= SHARD_SEQUENCES:
                    store.add(finished, config.seed)
                    finished = []
                    rate = answer_tokens / elapsed
                    note = f"{answer_tokens:,} answer tokens · {rate:.0f}/s"
                    progress.update(task, completed=elapsed, note=note)
                    if not progress.console.is_terminal:
                        print(note, flush=True)
        finally:  # also on Ctrl-C: nothing that is finished is lost
            if finished:
                store.add(finished, config.seed)
    print(f"{len(store.shards())} shards in {config.data}; next: python -m models.distill train")
