"""A drafter that is a network with a cache: one draft step at a time, or all of them ahead.

Step by step, the host reads the children that each step found and makes the next beam of them. On
a device that costs a wait a step. Drafting ahead, the beams are made there
(`engine.drafters.beam_on_device`) and the host reads the children of all steps at once. Both run
the same passes. What a pass is made of is the subclass's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from engine.backends.protocol import Children, DraftedAhead
from engine.drafters.beam_on_device import BeamThere, grow_there
from engine.drafters.best_on_device import best_there
from engine.drafters.committed_rows import NOT_FINITE, BeamAt, CommittedRows, write_best
from engine.drafters.protocol import Drafter
from engine.drafters.roots import Roots
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Ints, Limits
from engine.state import SlotState, TreeState
from models.kv_cache import KVCache, TokenBatch
from models.upload import upload_rows

Steer = Callable[[int, Tensor, BeamThere | None], None]
"""Called with a draft step, its children [S, P, 2 C], to be changed in place, and their beam."""


class NetworkDrafter(Drafter, ABC):
    """What drafters with a network share; a subclass runs it."""

    roots: Roots

    def __init__(
        self,
        limits: Limits,
        capacity: int,
        new_cache: Callable[[int, int], KVCache],
        vocab: int,
        target_ids: Tensor | None = None,
    ) -> None:
        """The network has `vocab` tokens V; `target_ids` [V] where the target's are others.

        `capacity` is the committed rows a slot.
        """
        self.limits, self.vocab, self.target_ids = limits, vocab, target_ids
        self.rows = CommittedRows(limits, capacity)
        self.cache = new_cache(limits.slots, self.rows.cache_rows)
        self.roots = Roots(limits.slots, target_ids)
        self.device = self.cache.device
        self.ahead = self.device.type != "cpu"
        """Whether to draft ahead; a CPU has nothing to wait for, and its kernels are faster."""

    @abstractmethod
    def committed(self, slots: SlotState) -> Ints:
        """Rows [S] of committed text that the network is to have run."""
        ...

    @abstractmethod
    def root_logits(self, drafting: Bools, slots: SlotState) -> Iterator[tuple[Tensor, Ints]]:
        """Run what is new of the text of slots [S]: logits [n, V] behind the roots of slots [n].

        A pass counts as run when the next one is asked for.
        """
        ...

    @abstractmethod
    def beam_logits(self, batch: TokenBatch, at: BeamAt) -> Tensor:
        """Logits [T, V] of the children of a beam."""
        ...

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Catch up and score the roots' children."""
        for logits, done in self.root_logits(drafting[0], slots):
            write_best(logits, self.target_ids, (done, np.zeros_like(done)), children)
            self.roots.note(logits, done, slots.draft_entropy[0])

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that `step` made; a node sees its ancestors alone."""
        if not beam.size.any():
            return
        batch, where, place = self.rows.beam(step, self.committed(slots), trees, beam)
        parent = beam.parent_row[0][where, place]
        logits = self.beam_logits(batch, BeamAt(*upload_rows((where, place, parent), self.device)))
        write_best(logits, self.target_ids, (where, place), children)

    def draft_ahead(
        self,
        drafting: Bools,
        depth: Ints,
        width: Ints,
        slots: SlotState,
        steer: Steer | None = None,
    ) -> DraftedAhead | None:
        """All draft steps, read together; None where the host is to make the beams.

        A call that raises leaves the committed rows to be run again. `steer` may change the
        children of each step before their beam is made.
        """
        if not self.ahead:
            return None
        done = self.rows.done.copy()
        try:
            asked = drafting[0], np.where(drafting, depth, 0)[0], np.where(drafting, width, 0)[0]
            best, beams = self._run_ahead(*asked, slots, steer)
            token, probability = np.split(best.cpu().numpy(), 2, axis=1)  # the one wait
            if (probability < 0).any():
                raise FloatingPointError(NOT_FINITE)
        except Exception:
            self.rows.done[:] = done
            raise
        ends = [0, *np.cumsum([len(where) for where, _ in beams]).tolist()]
        where, places = (np.concatenate(parts) for parts in zip(*beams, strict=True))
        return DraftedAhead(token.astype(np.int64), probability, where, places, ends)

    def _run_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState, steer: Steer | None
    ) -> tuple[Tensor, list[tuple[Ints, Ints]]]:
        """Best children of all nodes [T, 2 C] as `best_there` has them; slots and places by step.

        Nothing is read. `depth` and `width` are 0 where a slot does not draft.
        """
        # Who steers looks at all children that there are, as step by step.
        most = self.limits.max_width if steer is not None else int(width.max())
        committed, most = self.committed(slots), min(most, self.vocab)
        (wide,) = upload_rows((width,), self.device)
        children = self._no_children(1, most)
        roots = np.empty(0, np.int64)
        for logits, done in self.root_logits(drafting, slots):
            (at,) = upload_rows((done,), self.device)
            children[at, 0] = best_there(logits.float(), self.target_ids, most)
            roots = np.concatenate((roots, done))
            self.roots.note(logits, done, slots.draft_entropy[0])
        if steer is not None:
            steer(1, children, None)
        (at,) = upload_rows((roots,), self.device)
        found, beams = [children[at, 0]], [(roots, np.zeros_like(roots))]
        beam: BeamThere | None = None
        size = np.ones_like(width)
        for step in range(1, int(depth.max())):
            # Every node has as many children as there is room and vocabulary for.
            size = np.minimum(width, size * np.minimum(width, self.vocab)) * (depth > step)
            places = int(size.max())
            token, probability = children.chunk(2, dim=-1)
            beam = grow_there(step, wide, places, token.long(), probability, beam, self.limits)
            batch, at_beam = self.rows.beam_there(step, committed, size, beam, self.device)
            logits = self.beam_logits(batch.batch, at_beam)
            children = self._no_children(places, most)
            stand = at_beam.slots, at_beam.places
            children[stand] = best_there(logits.float(), self.target_ids, most)
            if steer is not None:
                steer(step + 1, children, beam)
            found.append(children[stand])
            beams.append((batch.slots, batch.places))
        return torch.cat(found), beams

    def _no_children(self, places: int, most: int) -> Tensor:
        """Room for those of so many nodes a slot [S, places, 2 most]."""
        shape = self.limits.slots, places, 2 * most
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def release(self, slot: int) -> None:
        """The slot's next request starts from nothing, and meets no NaN of this one."""
        if self.rows.done[slot]:
            self.cache.scrub(np.array([slot]))
        self.rows.done[slot] = 0

    def memory_bytes(self) -> int:
        """Bytes of keys and values."""
        return self.cache.bytes_per_token() * len(self.rows.done) * self.rows.cache_rows
