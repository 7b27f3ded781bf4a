"""The training half of `python -m models.distill`: one loop, everything it logs visible in it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch import Tensor

from models.decoder import DecoderConfig, read_tensors
from models.distill.batches import BatchMaker, draft_vocabulary, stream, usable
from models.distill.head_module import HeadModule
from models.distill.store import SequenceStore
from models.draft_head import DraftHeadConfig
from models.errors import UserError
from models.registry import resolve

if TYPE_CHECKING:
    from models.distill.__main__ import TrainConfig

PROMPT_SHARE = 0.2
ROOT_SHARE = 0.5  # positions of an answer that a batch unrolls; the others come in a later epoch
LOG_EVERY = 10
MEASURE_SEQUENCES = 96


def initial_weights(
    target: dict[str, Tensor], config: DecoderConfig, vocab: Tensor
) -> dict[str, Tensor]:
    """Start from the target: its last layer, final norm and output rows, the latest feature.

    The embedding's half of query, key and value is new and starts small.
    """
    h = config.hidden_size
    last = f"model.layers.{config.layers - 1}"
    output = target["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    weights = {
        "fc.weight": torch.cat((torch.zeros(h, 2 * h), torch.eye(h)), dim=1),
        "midlayer.input_layernorm.weight": torch.ones(h),
        "midlayer.hidden_norm.weight": target[f"{last}.input_layernorm.weight"],
        "midlayer.post_attention_layernorm.weight": target[
            f"{last}.post_attention_layernorm.weight"
        ],
        "norm.weight": target["model.norm.weight"],
        "lm_head.weight": output[vocab],
    }
    weights["fc.weight"] += 0.01 * torch.randn(h, 3 * h)
    for name in ("q", "k", "v"):
        old = target[f"{last}.self_attn.{name}_proj.weight"]
        new = 0.02 * torch.randn(old.shape)
        weights[f"midlayer.self_attn.{name}_proj.weight"] = torch.cat((new, old), dim=1)
    for name in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        weights[f"midlayer.{name}.weight"] = target[f"{last}.{name}.weight"]
    return weights


def rate_factor(elapsed: float, total: float, decay: float, step: int) -> float:
    """Warm up over 30 steps, hold, then fall to zero over the last `decay` share of the time."""
    left = max(0.0, 1.0 - elapsed / total)
    return min(1.0, (step + 1) / 30, left / decay if decay > 0 else 1.0)


def train(config: TrainConfig) -> None:
    """Train or go on training in `config.out`, then write the head to `config.out`/head."""
    from torch.utils.tensorboard import SummaryWriter

    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    store = SequenceStore(config.data)
    if len(store.shards()) <= config.held_out_shards:
        raise UserError(
            f"{config.data} holds {len(store.shards())} shards, expected more than "
            f"{config.held_out_shards}; run `python -m models.distill generate` first"
        )
    folder = resolve(config.target)
    target_config = DecoderConfig.from_folder(folder)
    target = {name: tensor.float() for name, tensor in read_tensors(folder).items()}
    embedding = target["model.embed_tokens.weight"]
    checkpoint = config.out / "checkpoint.pt"
    saved: dict[str, Any] | None = None
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        vocab, weights = saved["vocab"], saved["weights"]
    else:
        config.out.mkdir(parents=True, exist_ok=True)
        vocab = draft_vocabulary(store, config.draft_vocab, target_config.vocab_size)
        weights = initial_weights(target, target_config, vocab)
    head_config = DraftHeadConfig.for_target(target_config, len(vocab))
    module = HeadModule(head_config, weights, embedding)
    # The output rows are the target's own and stay so: a fifth of a training step saved.
    module.weights["lm_head/weight"].requires_grad_(config.train_output)
    optimizer = torch.optim.AdamW(
        [p for p in module.parameters() if p.requires_grad],
        lr=config.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.0,
    )
    step = tokens_seen = 0
    if saved:
        optimizer.load_state_dict(saved["optimizer"])
        step, tokens_seen = saved["step"], saved["tokens_seen"]
    output_rows = embedding if target_config.tied else target["lm_head.weight"]
    maker = BatchMaker(vocab, output_rows[vocab], config.unroll)
    generator = np.random.default_rng([config.seed, step])
    groups = stream(store, config.held_out_shards, config.batch_tokens, generator)
    step_weights = config.step_weight ** torch.arange(config.unroll)
    writer = SummaryWriter(str(config.out))
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: stopping.append(n))

    def save() -> None:
        state = {
            "weights": module.checkpoint(),
            "optimizer": optimizer.state_dict(),
            "vocab": vocab,
            "step": step,
            "tokens_seen": tokens_seen,
        }
        torch.save(state, checkpoint.with_suffix(".partial"))
        os.replace(checkpoint.with_suffix(".partial"), checkpoint)

    start = time.monotonic()
    total = config.minutes * 60
    sums = torch.zeros(3, config.unroll)
    with Progress(
        TextColumn("train"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn()
    ) as bar:
        task = bar.add_task("", total=total, note="")
        while (elapsed := time.monotonic() - start) < total and not stopping:
            batch = maker.make(next(groups), ROOT_SHARE, generator, PROMPT_SHARE)
            factor = rate_factor(elapsed, total, config.decay, step)
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * factor
            losses, hits, counts = module.losses(batch)
            loss = (step_weights * losses / counts.clamp(min=1)).sum()
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            step += 1
            tokens_seen += int(counts[0])
            sums += torch.stack((losses.detach(), hits.float(), counts.float()))
            if step % LOG_EVERY == 0:
                loss_by_step, accuracy = sums[0] / sums[2], sums[1] / sums[2]
                sums.zero_()
                for k in range(config.unroll):
                    writer.add_scalar(f"loss/step_{k + 1}", loss_by_step[k], step)
                    writer.add_scalar(f"accuracy/step_{k + 1}", accuracy[k], step)
                writer.add_scalar("optimizer/learning_rate", config.learning_rate * factor, step)
                writer.add_scalar("optimizer/gradient_norm", norm, step)
                shown = " ".join(f"{a:.2f}" for a in accuracy.tolist())
                note = (
                    f"step {step} · {tokens_seen:,} roots · accuracy {shown} · "
                    f"loss {loss_by_step[0]:.2f}"
                )
                bar.update(task, completed=elapsed, note=note)
                if not bar.console.is_terminal:
                    print(note, flush=True)
            if step % config.save_every == 0:
                save()
    save()
    held_out = held_out_accuracy(module, maker, store, config.held_out_shards)
    for k, value in enumerate(held_out):
        writer.add_scalar(f"held_out_accuracy/step_{k + 1}", value, step)
    writer.close()
    figures = {
        "steps": step,
        "roots": tokens_seen,
        "shards": len(store.shards()),
        "held_out_accuracy_by_draft_step": [round(a, 4) for a in held_out],
    }
    export_head(config.out / "head", module, vocab, figures)
    print(json.dumps(figures))
    print(f"head in {config.out / 'head'}; go on with the same command, it resumes")


@torch.inference_mode()
def held_out_accuracy(
    module: HeadModule, maker: BatchMaker, store: SequenceStore, shards: int
) -> list[float]:
    """Share of the target's tokens that the head ranks first, by draft step, along the true text.

    Tokens outside the draft vocabulary count as missed.
    """
    generator = np.random.default_rng(0)
    sequences = [
        s for path in store.shards()[:shards] for s in SequenceStore.read(path) if usable(s)
    ]
    sequences = sequences[:MEASURE_SEQUENCES]
    hits = torch.zeros(maker.unroll)
    total = torch.zeros(maker.unroll)
    for begin in range(0, len(sequences), 8):
        batch = maker.make(sequences[begin : begin + 8], 0.5, generator)
        hits += module.losses(batch)[1]
        ends = torch.cat(
            [torch.full((len(r),), n) for r, n in zip(batch.roots, batch.row_counts, strict=True)]
        )
        roots = torch.cat(batch.roots)
        total += (roots[None] + torch.arange(maker.unroll)[:, None] < ends[None]).sum(1)
    return (hits / total).tolist()


def export_head(folder: Path, module: HeadModule, vocab: Tensor, figures: dict[str, Any]) -> None:
    """Write the head in the public EAGLE-3 format (bfloat16 safetensors and config.json)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: w.bfloat16().contiguous() for name, w in module.checkpoint().items()}
    tensors["d2t"] = vocab - torch.arange(len(vocab))
    inside = torch.zeros(module.config.vocab_size, dtype=torch.bool)
    inside[vocab] = True
    tensors["t2d"] = inside
    partial = folder / "model.partial"
    save_file(tensors, partial)
    os.replace(partial, folder / "model.safetensors")
    (folder / "config.json").write_text(module.config.to_json())
    (folder / "training.json").write_text(json.dumps(figures, indent=2) + "\n")
