"""Random schedules: no page leaks, no text changes; and what breaks that rule is noticed here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.ledger import Ledger
from engine.loop import Engine
from engine.request import Status
from tests.random_schedules import run_schedules


def test_random_schedules_leak_nothing_and_change_no_text() -> None:
    counts = run_schedules(40, seed=0)
    assert counts["schedules"] == 40
    # All that may happen did happen, or the schedules would show little.
    for name in ("finished", "cancelled", "failed", "preempted", "shrunk", "rejected", "degraded"):
        assert counts[name] > 0, name
    assert counts["preempted"] > 10
    assert counts["finished"] > counts["requests"] / 2
    ended = sum(counts.get(status, 0) for status in Status)
    assert ended == counts["requests"]


def test_a_seed_gives_the_same_schedules() -> None:
    assert run_schedules(2, seed=5) == run_schedules(2, seed=5) != run_schedules(2, seed=6)


def keep_pages(patch: pytest.MonkeyPatch) -> None:
    """A request that ends keeps its pages."""
    patch.setattr(
        Engine, "end", lambda self, slot, status: self.ledger.finish(slot, self.clock_s, status)
    )


def forget_outputs(patch: pytest.MonkeyPatch) -> None:
    """A preempted request comes back with its prompt alone in the cache."""
    patch.setattr(Ledger, "tokens_to_prefill", lambda self, request: len(request.prompt))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [(keep_pages, "without a request own"), (forget_outputs, "differs")],
)
def test_what_breaks_the_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], sentence: str
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=sentence):
        run_schedules(30, seed=0)
