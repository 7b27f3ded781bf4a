"""The proof that speculation changes no text: it holds where it must, and a fault is found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from engine.backends.protocol import Choices
from engine.backends.wrapper import BackendWrapper
from engine.errors import UserError
from engine.protocol import Bools, Floats, Limits
from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from engine.state import SlotState, TreeState
from engine.tiny import tiny_server
from eval.lossless import other_format, telling
from eval.lossless.course import BROKEN, LOSSLESS, LOSSY, Report, proved
from eval.lossless.departures import common, logits_after, score_gap, top_gap
from eval.lossless.law import Law, fit, law_of
from eval.lossless.same_text import Compared
from eval.lossless.scope import Scope

LIMITS = Limits(slots=12, max_depth=3, max_width=2, max_nodes=6)
SMALL = Scope(
    policy=("chain(3)", "adaptivespec-margin"), prompts=3, tokens=12, draws=120, choices=3,
    beginning=3,
)  # fmt: skip


class FirstDraft(BackendWrapper):
    """A broken verifier: behind the root it emits the first draft, whatever the target says."""

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The inner backend's choices, spoilt."""
        super().verify(decoding, margin, slots, trees, choices)
        for s in np.flatnonzero(decoding[0]):
            children = np.flatnonzero(trees.kept[0, s] & (trees.parent[0, s] == -1))
            if len(children):
                choices.root_token[0, s] = trees.token[0, s, children[0]]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 12, limits=LIMITS, capacity_tokens=160)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def report(server: LiveServer) -> Iterator[Report]:
    def rounded(_: LiveServer, dtype: torch.dtype, slots: int) -> LiveServer:
        assert dtype == torch.bfloat16 and slots == other_format.SLOTS
        return tiny_server(0, 12, limits=LIMITS, capacity_tokens=160, dtype="bfloat16")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other_format, "in_format", rounded)
        yield proved(SMALL, server, lambda words: None)


def test_a_chain_is_lossless_and_a_margin_is_told(report: Report) -> None:
    chain, margin = report.proofs
    assert chain.status == LOSSLESS and chain.unexplained == 0 and not chain.served.let_through
    assert margin.status == LOSSY and margin.served.let_through > 0
    assert report.is_caught and report.holds
    text = "\n".join(telling.told(report))
    assert "chain(3) says what the target says" in text
    assert "of its tokens" in text and "caught, as it must be" in text
    assert report.floor is not None and len(report.floor.texts) == 2 * SMALL.prompts
    assert "ordinary decoding in bfloat16 keeps" in text


def test_a_broken_verifier_is_found(server: LiveServer) -> None:
    backend = server.backend
    scope = Scope(policy=("chain(3)",), prompts=2, tokens=10, draws=120, choices=3, beginning=3)
    wrapper = FirstDraft(backend)
    try:
        server.backend = wrapper  # type: ignore[assignment]
        found = proved(scope, server, lambda words: None)
    finally:
        server.backend = backend
    (chain,) = found.proofs
    assert chain.status == BROKEN and chain.unexplained > 0
    # The law alone finds it too, without a text to compare with.
    assert chain.p < 0.01
    assert not found.holds and found.floor is None
    assert telling.verdict(found).startswith("chain(3) changes what the target says")


def test_the_summary_is_plain_and_has_its_intervals(report: Report) -> None:
    summary, rows = telling.summary(report), telling.rows(report)
    of = summary["controllers"]["chain(3)"]
    assert of["agreement"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert of["departures_per_100k"]["low"] == 0.0 < of["departures_per_100k"]["high"]
    assert len(rows) == 3 * 2 * SMALL.prompts
    assert summary["holds"] and summary["control"]["status"] == "caught, as it must be"


def test_one_text_has_no_interval() -> None:
    assert telling._percent({"value": 0.5, "low": 0.25, "high": 0.75}) == "50.0 [25.0, 75.0]"
    assert telling._percent(telling._agreement([Compared("greedy", 0, 4, 1.0)])) == "100.0"


# -- the law ---------------------------------------------------------------------------------------


def test_the_law_is_the_softmax_of_the_likeliest(server: LiveServer) -> None:
    prompt = [1, 2, 3]
    law = law_of(server.decoder, prompt, choices=2, tokens=2)
    assert law.probability.sum() == pytest.approx(1.0)
    assert len(law.beginnings) == 4
    first = logits_after(server.decoder, prompt).double().topk(2)
    second = logits_after(server.decoder, [*prompt, int(first.indices[0])]).double().topk(2)
    chance = first.values.softmax(0)[0] * second.values.softmax(0)[0]
    place = law.beginnings.index((int(first.indices[0]), int(second.indices[0])))
    assert law.probability[place] == pytest.approx(float(chance))


def test_draws_of_the_law_fit_and_others_do_not() -> None:
    law = Law(((0,), (1,), (2,)), np.array([0.6, 0.3, 0.1]))
    rng = np.random.default_rng(0)

    def drawn(chances: list[float]) -> list[tuple[int]]:
        return [(int(i),) for i in rng.choice(3, 500, p=chances)]

    right = [fit(law, drawn([0.6, 0.3, 0.1]), rng).p for _ in range(40)]
    assert sum(p < 0.05 for p in right) <= 6
    assert fit(law, drawn([0.45, 0.45, 0.1]), rng).p < 1e-3
    impossible = fit(law, [*drawn([0.6, 0.3, 0.1]), (7,)], rng)
    assert impossible.impossible == 1 and impossible.p == 0.0


def test_gaps_by_hand(server: LiveServer) -> None:
    logits = logits_after(server.decoder, [4, 5]).double()
    best = logits.topk(2)
    one, other = best.indices.tolist()
    gap = float(best.values[0] - best.values[1])
    assert top_gap(server.decoder, [4, 5]) == pytest.approx(gap)
    greedy = SamplingParams()
    assert score_gap(server.decoder, [4], [5], (one, other), greedy, 0) == pytest.approx(gap)
    assert common([1, 2, 3], [1, 2, 4, 5]) == 2 and common([1], [1, 2]) == 1


def test_too_many_beginnings_are_refused() -> None:
    with pytest.raises(UserError, match=r"--draws 80: expected 100 or more"):
        Scope(draws=80).check()
    with pytest.raises(UserError, match="make 256 beginnings"):
        Scope(draws=200, choices=4).check()
