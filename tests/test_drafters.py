"""Every drafter feeds the same trees, never touches the text, and knows the committed text alone.

What lookups find is test_prompt_lookup's, what the EAGLE-3 head computes is test_draft_head's.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch

from engine.backends.live import LiveBackend
from engine.backends.protocol import new_children
from engine.drafters import committed_rows
from engine.drafters.build import DRAFTERS
from engine.drafters.model import ModelDrafter
from engine.kernels.beam import grow, new_beam
from engine.loop import Engine
from engine.protocol import Bools, Candidates, Limits, Plan, View
from engine.request import Request
from engine.serving import LiveServer
from engine.state import SlotState, TreeState, new_trees
from engine.tiny import tiny_server
from models.kv_cache import TokenBatch
from tests.random_plans import Choice, ListedPlans, RandomMasks, RandomPlans

VOCAB, CAPACITY = 10, 96
LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)
ORDINARY = Choice(0, 1, 0, 0, 16, 3)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For tiny networks more threads only cost time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def server_of(drafter: str) -> LiveServer:
    """The tiny target in float64 with a drafter of each kind."""
    return tiny_server(0, VOCAB, limits=LIMITS, capacity_tokens=CAPACITY, drafter=drafter)


@pytest.fixture(params=DRAFTERS)
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """One of them; whatever its drafter raises fails the test."""
    server = server_of(request.param)
    before = server.guard.failures
    yield server
    assert server.guard.failures == before


def draw_requests(seed: int, tokens: int = 20) -> list[Request]:
    """Four requests for three slots."""
    rng = np.random.default_rng(seed)
    return [
        Request(i, 0, rng.integers(0, VOCAB, int(rng.integers(1, 30))).tolist(), tokens, 0.0)
        for i in range(4)
    ]


@cache
def ordinary_answers(seed: int) -> list[list[int]]:
    """What decoding without drafts answers."""
    requests = draw_requests(seed)
    server_of("eagle3").engine(requests).serve(ListedPlans([ORDINARY]))
    return [request.output for request in requests]


@pytest.mark.parametrize("kind", [RandomPlans, RandomMasks])
def test_no_drafter_changes_the_text(server: LiveServer, kind: type[RandomPlans]) -> None:
    accepted = 0
    for seed in range(2):
        requests = draw_requests(seed)
        engine = server.engine(requests)
        engine.serve(kind(np.random.default_rng(seed)))
        assert [request.output for request in requests] == ordinary_answers(seed)
        accepted += engine.counters["emitted"] - engine.counters["request_iterations"]
    assert accepted > 5, "equal text shows nothing unless drafts were accepted"


# -- the form of the trees -------------------------------------------------------------------------


class Watching(RandomPlans):
    """Keeps every iteration's plan and candidates."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng, idle=0.0)
        self.seen: list[tuple[Plan, Candidates]] = []

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        self.seen.append((plan, deepcopy(candidates)))
        return None


def test_trees_keep_to_the_protocol(server: LiveServer) -> None:
    watching = Watching(np.random.default_rng(1))
    server.engine(draw_requests(1)).serve(watching)
    nodes = deepest = widest = 0
    for plan, candidates in watching.seen:
        for slot in np.flatnonzero(candidates.size).tolist():
            depth, width = int(plan.depth[slot]), int(plan.width[slot])
            n = int(candidates.size[slot])
            parent, token = candidates.parent[slot, :n], candidates.token[slot, :n]
            chance, level = candidates.probability[slot, :n], candidates.depth[slot, :n]
            assert level.max() <= depth
            assert n <= width + (depth - 1) * width * width
            assert ((token >= 0) & (token < VOCAB)).all()
            above = np.where(parent < 0, 1.0, chance[parent])
            assert ((chance > 0) & (chance <= above)).all() and above.max() <= 1
            for node in {-1, *parent.tolist()}:
                siblings = token[parent == node].tolist()
                assert len(set(siblings)) == len(siblings) <= width
                assert (np.diff(chance[parent == node]) <= 0).all()
                widest = max(widest, len(siblings))
            nodes, deepest = nodes + n, max(deepest, int(level.max()))
    assert nodes > 100 and (deepest, widest) == (LIMITS.max_depth, LIMITS.max_width)


# -- state between iterations ----------------------------------------------------------------------


def served_for_a_while(server: LiveServer, seed: int) -> tuple[Engine, Bools]:
    """Mid-episode after random plans, stretches without drafts among them; who decodes."""
    engine = server.engine(draw_requests(seed, 40))
    rng = np.random.default_rng(seed)
    controller = RandomPlans(rng)
    for _ in range(int(rng.integers(8, 16))):
        view = engine.next_decision()
        assert view is not None
        engine.run_iteration(view, controller)
    assert engine.slots.decoding.any()
    return engine, engine.slots.decoding.copy()


def draft(backend: LiveBackend, running: Bools, slots: SlotState) -> TreeState:
    """Trees of full depth and width."""
    trees, beam = new_trees(1, LIMITS), new_beam(1, LIMITS)
    children = new_children(1, LIMITS)
    width = np.full(running.shape, LIMITS.max_width)
    drafting = running.copy()
    backend.draft_first(drafting, slots, children)
    grow(1, drafting, width, *children, trees, beam)
    for step in range(2, LIMITS.max_depth + 1):
        backend.draft_next(step - 1, slots, trees, beam, children)
        grow(step, drafting, width, *children, trees, beam)
    return trees


@pytest.mark.parametrize("rows_a_pass", [512, 3])
def test_drafts_depend_on_committed_text_alone(
    server: LiveServer, rows_a_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafted = 0
    for seed in range(2):
        engine, running = served_for_a_while(server, seed)
        slots = engine.slots
        got = draft(server.backend, running, slots)
        # Another backend reads the whole text at once, as if it were a prompt.
        monkeypatch.setattr(committed_rows, "CATCH_UP_ROWS", rows_a_pass)
        fresh = LiveBackend(server.decoder, server.head, LIMITS, CAPACITY)
        slots.prefilled[:] = 0
        for slot in np.flatnonzero(running[0]).tolist():
            fresh.prefill(slot, slots, int(slots.context[0, slot]))
        wanted = draft(fresh, running, slots)
        monkeypatch.undo()
        np.testing.assert_array_equal(got.size, wanted.size)
        for slot, size in enumerate(wanted.size[0].tolist()):
            drafted += size
            for name in ("parent", "depth", "token", "probability"):
                # Chances are float32's, states are float64's.
                a, b = getattr(got, name)[0, slot, :size], getattr(wanted, name)[0, slot, :size]
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=0)
    assert drafted > 100


def test_a_drafter_that_keeps_a_beam_would_be_noticed() -> None:
    server = server_of("model")
    engine, running = served_for_a_while(server, 0)
    wanted = draft(server.backend, running, engine.slots)
    drafter = server.drafter
    assert isinstance(drafter, ModelDrafter)
    drafter.release(0)
    drafter.rows.done[np.flatnonzero(running[0])] = 3  # these rows are now said to be right
    drafter.cache.keys[:, :, :, :3] = 0
    got = draft(server.backend, running, engine.slots)
    assert not np.allclose(got.probability, wanted.probability, rtol=1e-5)


@torch.inference_mode()
def test_the_model_reads_text_and_path_and_nothing_else() -> None:
    server = server_of("model")
    engine, running = served_for_a_while(server, 2)
    trees, slots = draft(server.backend, running, engine.slots), engine.slots
    drafter = server.drafter
    assert isinstance(drafter, ModelDrafter)
    decoder = drafter.decoder
    for slot in np.flatnonzero(running[0]).tolist():
        text = slots.text[0, slot, : slots.context[0, slot] + 1].tolist()
        for node in range(int(trees.size[0, slot])):
            path: list[int] = []
            above = int(trees.parent[0, slot, node])
            chance = 1.0 if above < 0 else float(trees.probability[0, slot, above])
            while above >= 0:
                path.insert(0, int(trees.token[0, slot, above]))
                above = int(trees.parent[0, slot, above])
            rows = torch.arange(len(text) + len(path))
            n, zeros = len(rows), torch.zeros_like(rows)
            mask = torch.ones(1, n, n, dtype=torch.bool).tril()
            batch = TokenBatch(torch.tensor(text + path), rows, zeros, rows, rows, mask, 0, 1)
            hidden, _ = decoder.forward(batch, decoder.new_cache(1, n))
            chances = decoder.logits(hidden[-1:]).softmax(-1)[0]
            expected = chance * float(chances[trees.token[0, slot, node]])
            assert trees.probability[0, slot, node] == pytest.approx(expected, rel=1e-4)


def test_only_the_head_has_features_kept() -> None:
    for drafter in DRAFTERS:
        backend = server_of(drafter).backend
        assert (backend.features is not None) == (drafter == "eagle3")
        assert backend.capture == ((2, 4, 5) if drafter == "eagle3" else ())
        assert server_of(drafter).guard.memory_bytes() > 0
        assert f"drafter {drafter}" in server_of(drafter).describe()
