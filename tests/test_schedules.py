"""Random schedules: no page leaks, no text changes; and what breaks that rule is noticed here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.ledger import Ledger
from engine.loop import Engine
from engine.request import Request, Status
from engine.sampling.sampler import Sampler
from tests.random_schedules import DRAFTERS, ORDERS, POLICIES, Variant, run_schedules


def test_random_schedules_leak_nothing_and_change_no_text() -> None:
    counts = run_schedules(48, seed=0)
    assert counts["schedules"] == 48
    # All that may happen did happen, or the schedules would show little.
    for name in ("finished", "cancelled", "failed", "preempted", "shrunk", "rejected", "degraded"):
        assert counts[name] > 0, name
    for drafter in DRAFTERS:
        assert counts[f"accepted of {drafter}"] > 20, drafter
    assert counts["requests"] / 3 < counts["sampled"] < counts["requests"] * 2 / 3
    assert counts["preempted"] > 10
    assert counts["finished"] > counts["requests"] / 2
    ended = sum(counts.get(status, 0) for status in Status)
    assert ended == counts["requests"]


def test_every_variant_has_its_turn() -> None:
    variants = {Variant.of(number) for number in range(48)}
    assert len(variants) == 48 == len(DRAFTERS) * len(ORDERS) * len(POLICIES)


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


def ignore_seeds(patch: pytest.MonkeyPatch) -> None:
    """Sampled requests are served by the noise of their slots."""
    admit = Sampler.admit

    def by_slot(self: Sampler, slot: int, request: Request) -> None:
        admit(self, slot, request)
        self.seed[slot] = slot

    patch.setattr(Sampler, "admit", by_slot)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (keep_pages, "without a request own"),
        (forget_outputs, "differs"),
        (ignore_seeds, "differs from ordinary decoding"),
    ],
)
def test_what_breaks_the_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], sentence: str
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=sentence):
        run_schedules(30, seed=0)
