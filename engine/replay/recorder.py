"""Record texts: the target's answers by the live engine, then what the drafter proposes in them.

Answers come from ordinary decoding, many at a time. Then each text is read once more in one piece,
and drafted at all its places, some side by side (ALGORITHMS.md §11). Which texts is the recipe's
business, where they are stored the folder's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.classes import ClassTable, SLOClass
from engine.drafters.divergence import divergence_nats, entropy_nats
from engine.errors import UserError
from engine.profile.fallback import WithoutProfile
from engine.protocol import Ints
from engine.replay.forced_reading import ForcedReader, Reading
from engine.replay.kept_nodes import KeptNodes, compare_with_text, keep_nodes, new_kept
from engine.replay.recipe import Task
from engine.replay.recording import NEVER, Manifest, Recording, join
from engine.replay.union_drafting import UnionDrafter
from engine.request import Request
from engine.sampling.params import MARGIN_GUARD
from engine.serving import LiveServer
from models.draft_head import DraftHead
from models.tokenizer import Tokenizer

PLACES_AT_ONCE = 16
ANY_CLASS = ClassTable((SLOClass("recorded", float("inf")),))
NODE_FIELDS = ("parent", "depth", "widths", "token", "probability", "log_ratio")


class Recorder:
    """A live server that is recorded; its limits are the recording's."""

    def __init__(self, server: LiveServer) -> None:
        """Raises UserError for a drafter that cannot be recorded."""
        if not isinstance(server.head, DraftHead):
            raise UserError(
                f"the drafter {server.drafter.name} cannot be recorded; expected eagle3 with a "
                "draft head"
            )
        if server.head.device.type != "cpu":
            raise UserError(
                "recordings are made on the CPU, but the networks are on "
                f"{server.head.device}; load the server with device cpu"
            )
        self.server, self.limits = server, server.settings.limits
        self._target_ids = server.head.target_ids
        capacity = server.settings.context_tokens
        layers = server.head.feature_layers(server.decoder.config.layers)
        self._reader = ForcedReader(server.decoder, capacity, layers)
        self._drafter = UnionDrafter(
            server.head, PLACES_AT_ONCE, capacity, self.limits.max_depth, self.limits.max_width
        )
        self._kept = new_kept(PLACES_AT_ONCE)
        shape = (PLACES_AT_ONCE, self._drafter.limits.max_candidates)
        self._on_path, self._log_ratio = np.zeros(shape, np.bool_), np.zeros(shape)

    def manifest(self, classes: Sequence[str]) -> Manifest:
        """What a recording of this server says of itself."""
        of = self.server.identity
        return Manifest(
            model=of.model,
            drafter=of.drafter,
            network=of.network,
            dtype=of.dtype,
            vocab_size=self.server.decoder.config.vocab_size,
            max_depth=self.limits.max_depth,
            max_width=self.limits.max_width,
            max_nodes=self.limits.max_nodes,
            classes=tuple(classes),
        )

    def record(
        self, tasks: Sequence[Task], tokens: int, advance: Callable[[int], None] = lambda _: None
    ) -> Recording:
        """Texts of `tokens` output tokens each; `advance` is told of places that are done.

        Raises UserError where a text cannot be had.
        """
        outputs = self._answers(tasks, tokens)
        parts = []
        for task, output in zip(tasks, outputs, strict=True):
            parts.append(self._record_text(task, output))
            advance(parts[-1].places)
        return join(parts)

    def _answers(self, tasks: Sequence[Task], tokens: int) -> list[list[int]]:
        """The target's greedy answers, which its end does not end."""
        longest = max(len(task.prompt) for task in tasks)
        if longest + tokens > (most := self.server.settings.context_tokens):
            raise UserError(
                f"a prompt of {longest} tokens and {tokens} output tokens exceed the context of "
                f"{most}; lower --tokens or --prompt-tokens"
            )
        requests = [Request(i, 0, list(task.prompt), tokens, 0.0) for i, task in enumerate(tasks)]
        self.server.engine(requests, ANY_CLASS).serve(WithoutProfile())
        for request in requests:
            if len(request.output) < tokens:
                raise UserError(
                    f"the target {self.server.name} gave {len(request.output)} of {tokens} tokens "
                    "and then numbers that are none; check its weights"
                )
        return [request.output for request in requests]

    def _record_text(self, task: Task, output: list[int]) -> Recording:
        prompt = len(task.prompt)
        text = np.array([*task.prompt, *output])
        reading = self._reader.read(text, prompt)
        self._drafter.read(text, reading.features)
        places, answer = np.arange(len(output) - 1), np.array(output)
        levels, floor = reading.logits.numpy(), floors(reading)
        groups, behind_roots = [], []
        # From the end to the beginning: see `UnionDrafter.draft`.
        for first in range(0, len(places), PLACES_AT_ONCE)[::-1]:
            at = places[first : first + PLACES_AT_ONCE]
            behind_roots.append(self._drafter.draft(prompt + at))
            groups.append(self._keep(at, answer, levels, floor))
        nodes = {
            name: np.concatenate([group[name] for group in groups[::-1]])
            for name in ("size", *NODE_FIELDS)
        }
        return Recording(
            text_class=np.array([task.text_class], np.uint8),
            held_out=np.array([task.held_out]),
            prompt_tokens=np.array([prompt], np.int32),
            ended=np.array([self._ended(output)], np.int32),
            first_token=np.array([0, len(text)]),
            tokens=text.astype(np.int32),
            first_place=np.array([0, len(places)]),
            first_node=np.concatenate(([0], nodes.pop("size").cumsum())),
            **self.signals(reading, torch.cat(behind_roots[::-1])),
            **{**nodes, "log_ratio": nodes["log_ratio"].astype(np.float16)},
        )

    def signals(self, reading: Reading, behind_roots: torch.Tensor) -> dict[str, np.ndarray]:
        """By field, what a text's P places show of the drafter, whose logits are [P, V_draft]."""
        said = behind_roots.double()
        divergence = divergence_nats(reading.logits.double(), said, self._target_ids)
        return {
            "entropy": entropy_nats(said).numpy().astype(np.float16),
            "divergence": divergence.numpy().astype(np.float16),
        }

    def _keep(
        self, at: Ints, answer: Ints, levels: np.ndarray, floor: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The nodes drafted last, of all places `at` [n] behind one another, by field."""
        trees, limits, kept = self._drafter.trees, self.limits, self._kept
        compare_with_text(at, answer, levels, floor, trees, self._on_path, self._log_ratio)
        keep_nodes(
            len(at),
            limits.max_depth,
            limits.max_width,
            limits.max_nodes,
            trees,
            self._drafter.widths,
            self._on_path,
            self._log_ratio,
            kept,
        )
        return flattened(kept, len(at))

    def _ended(self, output: list[int]) -> int:
        """Output tokens up to the target's own end, that one included."""
        tokenizer: Tokenizer | None = self.server.tokenizer
        if tokenizer is None or tokenizer.eos_id not in output:
            return NEVER
        return output.index(tokenizer.eos_id) + 1


def floors(reading: Reading) -> np.ndarray:
    """The lowest level [L - 1 - P] that a margin may let through behind every output token."""
    most = min(MARGIN_GUARD, reading.logits.shape[1])
    best: torch.Tensor = reading.logits.topk(most, dim=-1).values
    return best[:, -1].double().numpy()


def flattened(kept: KeptNodes, count: int) -> dict[str, np.ndarray]:
    """Sizes and nodes of the first `count` places, the nodes behind one another."""
    real = np.arange(kept.parent.shape[1]) < kept.size[:count, None]
    nodes = {name: getattr(kept, name)[:count][real] for name in NODE_FIELDS}
    return {"size": kept.size[:count].copy(), **nodes}
