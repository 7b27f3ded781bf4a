"""Commit, acceptance history and slack: each against its twin, and replicas apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from engine.kernels.commit import HISTORY_DECAY, commit_tokens, record_acceptance
from engine.kernels.view import slack_tokens
from engine.protocol import Floats
from engine.state import SlotState, TreeState
from tests.random_trees import (
    TOKENS,
    Case,
    assert_same,
    cases,
    copied,
    keep_some,
    random_slots,
    random_trees,
    replica,
)
from tests.twins.commit_tokens import commit_tokens as commit_twin
from tests.twins.record_acceptance import DECAY, History, confidence
from tests.twins.record_acceptance import record_acceptance as record_twin
from tests.twins.slack_tokens import slack_tokens as slack_twin


def walked(case: Case) -> tuple[SlotState, TreeState, Floats]:
    """State as the walk leaves it, and the clock; due times are often met exactly."""
    slots, trees = random_slots(case), random_trees(case)
    keep_some(case, trees, slots.decoding)
    room = np.minimum(case.limits.max_depth + 1, slots.max_tokens - slots.emitted)
    trees.accepted_length[:] = 1 + case.rng.integers(0, room)
    trees.path_length[:] = trees.accepted_length - case.rng.integers(0, 2, room.shape)
    trees.path_length[:] = np.minimum(trees.path_length, case.limits.max_depth)
    trees.new_tokens[:] = case.rng.integers(0, TOKENS, trees.new_tokens.shape)
    return slots, trees, 2.0 + case.rng.integers(0, 16, case.replicas) / 8


@given(cases())
def test_commit_equals_its_twin(case: Case) -> None:
    slots, trees, clock_s = walked(case)
    before = copied(slots)
    valid = np.full(slots.active.shape, -1)
    done = np.ones(slots.active.shape, np.bool_)
    commit_tokens(slots.decoding, clock_s, slots, trees, valid, done)
    for r, s in np.ndindex(*slots.active.shape):
        if not slots.decoding[r, s]:
            assert valid[r, s] == 0 and not done[r, s]
            continue
        start, n = int(slots.prompt_tokens[r, s]), int(trees.accepted_length[r, s])
        wanted = commit_twin(
            before.text[r, s, start : start + before.emitted[r, s]].tolist(),
            trees.new_tokens[r, s, :n].tolist(),
            float(clock_s[r] - slots.first_token_s[r, s]),
            float(slots.promised_tpot_s[r, s]),
            int(slots.max_tokens[r, s]),
            {int(t) for t in slots.stop[r, s] if t >= 0},
        )
        end = start + slots.emitted[r, s]
        assert slots.text[r, s, start:end].tolist() == wanted.output
        assert slots.text[r, s, end:].tolist() == before.text[r, s, end:].tolist()
        assert slots.last_token[r, s] == wanted.output[-1]
        assert (valid[r, s], done[r, s]) == (wanted.valid, wanted.done)
        assert slots.valid_tokens[r, s] == before.valid_tokens[r, s] + wanted.valid
        assert slots.context[r, s] == before.context[r, s] + n
        assert slots.iterations[r, s] == before.iterations[r, s] + 1
    # Slots that do not decode are left alone.
    idle = ~slots.decoding
    for name in SlotState._fields:
        np.testing.assert_array_equal(getattr(slots, name)[idle], getattr(before, name)[idle])


@given(cases())
def test_history_equals_its_twin(case: Case) -> None:
    slots, trees, _ = walked(case)
    before = copied(slots)
    proposed = np.ones(slots.proposed.shape, np.bool_)
    accepted = np.ones(slots.proposed.shape, np.bool_)
    record_acceptance(slots.decoding, slots, trees, proposed, accepted)
    for r, s in np.ndindex(*slots.active.shape):
        old = History(*(getattr(before, n)[r, s].tolist() for n in HISTORY_FIELDS))
        new = History(*(getattr(slots, n)[r, s].tolist() for n in HISTORY_FIELDS))
        if not slots.decoding[r, s]:
            assert new == old and not proposed[r, s].any() and not accepted[r, s].any()
            assert slots.verified_nodes[r, s] == before.verified_nodes[r, s]
            continue
        kept = np.flatnonzero(trees.kept[r, s])
        depths = trees.depth[r, s, kept].tolist()
        wanted, offered, taken = record_twin(old, depths, int(trees.path_length[r, s]))
        assert new.since == wanted.since
        assert new.proposed == pytest.approx(wanted.proposed, abs=1e-12)
        assert new.accepted == pytest.approx(wanted.accepted, abs=1e-12)
        assert (proposed[r, s].tolist(), accepted[r, s].tolist()) == (offered, taken)
        assert slots.verified_nodes[r, s] == before.verified_nodes[r, s] + 1 + len(kept)
        n = int(trees.size[r, s])
        assert slots.draft_confidence[r, s] == confidence(
            trees.depth[r, s, :n].tolist(),
            trees.probability[r, s, :n].tolist(),
            float(before.draft_confidence[r, s]),
        )


HISTORY_FIELDS = ("proposed", "accepted", "since_proposed")


def test_the_twin_decays_as_the_kernel_does() -> None:
    assert DECAY == HISTORY_DECAY


@given(cases())
def test_slack_equals_its_twin(case: Case) -> None:
    slots, _, clock_s = walked(case)
    slack = np.full(slots.active.shape, np.nan)
    spent_s = np.full(slots.active.shape, np.nan)
    slack_tokens(clock_s, slots, slack, spent_s)
    for r, s in np.ndindex(*slots.active.shape):
        wanted = slack_twin(
            bool(slots.decoding[r, s]),
            float(clock_s[r]),
            float(slots.first_token_s[r, s]),
            int(slots.emitted[r, s]),
            float(slots.tpot_objective_s[r, s]),
        )
        assert (slack[r, s], spent_s[r, s]) == wanted


@given(cases())
def test_replicas_commit_apart(case: Case) -> None:
    slots, trees, clock_s = walked(case)
    alone = [(replica(slots, r), replica(trees, r)) for r in range(case.replicas)]
    shape, by_depth = slots.active.shape, slots.proposed.shape

    def run(slots: SlotState, trees: TreeState, clock_s: Floats) -> tuple[np.ndarray, ...]:
        n = len(clock_s)
        flags = [np.zeros((n, *by_depth[1:]), np.bool_) for _ in range(2)]
        valid, done = np.zeros((n, shape[1]), np.int64), np.zeros((n, shape[1]), np.bool_)
        slack, spent_s = np.zeros((n, shape[1])), np.zeros((n, shape[1]))
        record_acceptance(slots.decoding, slots, trees, *flags)
        commit_tokens(slots.decoding, clock_s, slots, trees, valid, done)
        slack_tokens(clock_s, slots, slack, spent_s)
        return (*flags, valid, done, slack, spent_s)

    together = run(slots, trees, clock_s)
    for r, (one_slots, one_trees) in enumerate(alone):
        mine = slice(r, r + 1)
        for got, wanted in zip(run(one_slots, one_trees, clock_s[mine]), together, strict=True):
            np.testing.assert_array_equal(got, wanted[mine])
        assert_same(one_slots, replica(slots, r))
