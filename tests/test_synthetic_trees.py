"""Synthetic recordings: calibrated, of known length, drifting as told, and well-formed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.errors import UserError
from engine.kernels.beam import new_beam
from engine.protocol import Limits
from engine.replay.acceptance import on_path
from engine.replay.recording import Recording, contradiction
from engine.replay.synthetic.calibration import (
    JUDGED,
    chain_survival,
    reliability,
    serving_tokens,
    tree_nodes,
)
from engine.replay.synthetic.children import draw_children
from engine.replay.synthetic.generator import (
    SyntheticConfig,
    draw_recording,
    drawn_drift,
    odds_factor,
)
from engine.replay.synthetic.miscalibration import miscalibrated_odds
from engine.replay.synthetic.model import SIBLINGS, Drafting, Tier
from engine.replay.synthetic.pairs import find_pair
from engine.replay.synthetic.texts import sample_texts
from engine.state import new_trees
from tests.twins.draw_children import draw_children as plain_children

MIXED = Drafting(easy=0.9, hard=0.5, stickiness=0.7, decay=0.97)
SMALL = SyntheticConfig(
    texts_per_class=4, tokens=120, prompt_tokens=9, max_depth=5, max_width=4, max_nodes=16
)


def sampled(drafting: Drafting, most: Tier, tokens: int = 6000, seed: int = 1) -> Recording:
    return sample_texts(drafting, [0.6], most, tokens, np.random.default_rng(seed))


def one_state(level: float, decay: float) -> Drafting:
    return Drafting(level, level, 0.5, decay)


def test_children_are_the_twins() -> None:
    rng, width, slots = np.random.default_rng(3), 5, 3
    limits = Limits(slots, 3, 4, 8)
    trees, beam = new_trees(1, limits), new_beam(1, limits)
    beam.size[0] = (4, 2, 1)
    beam.candidate[0] = rng.integers(0, 9, (slots, 4))
    known = rng.random((slots, limits.max_candidates)) < 0.5
    tokens = np.zeros((1, slots, 4, width), np.int64)
    chances = np.zeros((1, slots, 4, width))
    found = set()
    for step, odds in ((1, 1.0), (2, 1.0), (2, 0.2), (3, 7.0)) * 30:
        mean, top, rank = rng.uniform(0.05, 0.99, slots), rng.random((slots, 4)), rng.random(slots)
        target = rng.integers(-1, 30, slots)
        siblings = np.array(SIBLINGS[: width - 1])
        draw_children(
            step, mean, odds, siblings, top, rank, target, 30, trees, beam, known, tokens, chances
        )
        for s in range(slots):
            for p in range(1 if step == 1 else beam.size[0, s]):
                path = step == 1 or bool(known[s, beam.candidate[0, s, p]])
                of_one = mean[s], odds, SIBLINGS[: width - 1], top[s, p], rank[s], target[s]
                want_tokens, want = plain_children(*of_one, path, 30)
                assert tokens[0, s, p].tolist() == want_tokens
                assert len(set(want_tokens)) == width
                np.testing.assert_allclose(chances[0, s, p], want, rtol=1e-12)
                found.add(target[s] in want_tokens)
    assert found == {True, False}


@pytest.mark.parametrize("drafting", [MIXED, one_state(0.7, 0.9)])
def test_path_probabilities_are_the_chance_of_being_accepted(drafting: Drafting) -> None:
    """Binned, within four binomial errors; over all recorded nodes and over a likely tree."""
    r = sampled(drafting, Tier(6, 4, 16))
    for tier in (Tier(6, 4, 16), Tier(4, 1, 4), Tier(3, 2, 5)):
        curve = reliability(r, tier)
        full = curve.nodes >= 20
        p = curve.probability[full]
        error = np.sqrt(p * (1 - p) / curve.nodes[full]) + 1e-4
        assert (np.abs(curve.accepted[full] - p) < 4 * error).all()
        assert full.sum() > 8


def test_shown_probabilities_of_a_bold_drafter_are_not() -> None:
    """The comparison above can fail."""
    curve = reliability(sampled(MIXED._replace(odds_factor=2.0), Tier(6, 4, 16)), Tier(6, 4, 16))
    middle = (curve.nodes >= 20) & (curve.probability > 0.3) & (curve.probability < 0.9)
    assert (curve.accepted[middle] < curve.probability[middle]).all()


def test_a_chain_of_two_emits_what_it_must() -> None:
    """Level 0.6, halved by depth: 1 + 0.6 + 0.6 · 0.3 = 1.78 tokens an iteration."""
    r = sampled(one_state(0.6, 0.5), Tier(2, 1, 2), 20_000)
    assert serving_tokens(r, Tier(2, 1, 2)) == pytest.approx(1.78, abs=0.03)
    np.testing.assert_allclose(chain_survival(r, 2), [0.6, 0.18], atol=0.015)


def test_two_children_of_the_root_emit_what_they_must() -> None:
    """At level 1/2, q1 is uniform on 0 to 1 and q2 = min(q1, c (1 - q1)) with c = 0.264. They meet
    at x = c / (1 + c) = 0.2089, so E[q2] = x² / 2 + c (1 - x)² / 2 = 0.0218 + 0.0826 = 0.1044, and
    an iteration emits 1 + 0.5 + 0.1044 = 1.604 tokens."""
    assert SIBLINGS[0] == 0.264
    r = sampled(one_state(0.5, 1.0), Tier(1, 2, 2), 20_000)
    assert serving_tokens(r, Tier(1, 2, 2)) == pytest.approx(1.604, abs=0.02)


@pytest.mark.parametrize(
    ("name", "ece"),
    [
        ("adaserve-llama-70b", 0.065),
        ("kimi-k2-instruct--aq-medai-kimi-k2-instruct-eagle3", -0.065),
    ],
)
def test_miscalibrated_drafts_are_wrong_by_five_to_eight_percent(name: str, ece: float) -> None:
    pair = find_pair(name)
    shares = [pair.kinds[kind].easy_share for kind in dict.fromkeys(pair.classes.values())]
    odds = odds_factor(pair, replace(SMALL, shown="miscalibrated", ece=ece))
    assert (odds > 1) == (ece > 0)
    # Other draws than those by which it was found.
    rng = np.random.default_rng(99)
    wrong = sample_texts(pair.drafting._replace(odds_factor=odds), shares, JUDGED, 2000, rng)
    honest = sample_texts(pair.drafting._replace(odds_factor=1.0), shares, JUDGED, 2000, rng)
    assert 0.05 <= reliability(wrong).ece <= 0.08
    assert reliability(honest).ece < 0.012
    judged = tree_nodes(wrong, JUDGED)
    too_much = wrong.probability[judged].mean() - on_path(wrong)[judged].mean()
    assert np.sign(too_much) == np.sign(ece)


def test_acceptance_drifts_by_the_factor_and_is_shown_or_not() -> None:
    """A chain of one on a level that a factor of 1.1 does not push over 1."""
    pair = find_pair("adaserve-llama-70b")
    pair = replace(pair, drafting=one_state(0.7, 1.0))
    halves = replace(
        SMALL, texts_per_class=40, max_depth=1, max_width=1, max_nodes=1, drift=((60, 0.7),)
    )
    for seen in (True, False):
        _, r = draw_recording(pair, replace(halves, drift_is_seen=seen), np.random.default_rng(4))
        accepted, shown = on_path(r).reshape(-1, 119), r.probability.reshape(-1, 119)
        before, after = accepted[:, :60].mean(), accepted[:, 60:].mean()
        assert before == pytest.approx(0.7, abs=0.02)
        assert after / before == pytest.approx(0.7, abs=0.03)
        assert shown[:, 60:].mean() == pytest.approx(0.49 if seen else 0.7, abs=0.02)
    _, r = draw_recording(pair, replace(halves, drift=((0, 1.1),)), np.random.default_rng(5))
    assert on_path(r).mean() == pytest.approx(0.77, abs=0.02)


def test_classes_differ_by_their_texts_and_factors() -> None:
    name = "llama-3.1-8b-instruct--lmsys-sglang-eagle3-llama-3.1-8b-instruct-specforge"
    config = replace(SMALL, texts_per_class=30, class_factors={"chat": 0.5})
    manifest, r = draw_recording(find_pair(name), config, np.random.default_rng(0))
    kind = np.repeat(np.repeat(r.text_class, np.diff(r.first_place)), np.diff(r.first_node))
    chain = (r.widths & 1 == 1) & (r.depth == 1)
    rates = {c: on_path(r)[chain & (kind == i)].mean() for i, c in enumerate(manifest.classes)}
    assert rates["coding"] > rates["summarization"] + 0.1
    assert rates["chat"] < rates["summarization"]


def test_drawn_drift_is_what_the_shifting_preset_says() -> None:
    drift = drawn_drift(np.random.default_rng(0), 1000, 100)
    assert [start for start, _ in drift] == list(range(0, 1000, 100))
    assert all(0.7 <= factor <= 1.1 for _, factor in drift)


@pytest.mark.parametrize("shown", ["calibrated", "fitted"])
def test_a_recording_fits_together_and_a_seed_repeats_it(shown: str) -> None:
    pair = find_pair("kimi-k2-instruct--aq-medai-kimi-k2-instruct-eagle3")
    config = replace(SMALL, shown=shown)  # type: ignore[arg-type]
    manifest, first = draw_recording(pair, config, np.random.default_rng(7))
    _, again = draw_recording(pair, config, np.random.default_rng(7))
    _, other = draw_recording(pair, config, np.random.default_rng(8))
    assert contradiction(first) == "" and manifest.network == "synthetic"
    for name in Recording._fields:
        a, b = getattr(first, name), getattr(again, name)
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert not np.array_equal(first.tokens, other.tokens)
    assert first.texts == 16 and first.held_out.sum() == 8
    assert (np.diff(first.first_node) > 0).all()
    assert np.isfinite(first.entropy.astype(float)).all() and (first.log_ratio <= 0).all()
    # The target is taken to be sure: of the token that is drafted right, -log of its probability.
    right = (first.log_ratio == 0) & (first.depth == 1)
    place = np.repeat(np.arange(first.places), np.diff(first.first_node))[right]
    nats = -np.log(first.probability[right])
    np.testing.assert_allclose(first.divergence[place], nats, rtol=2e-3, atol=1e-6)
    assert 0.3 < len(place) / first.places < 1 and (first.divergence >= 0).all()
    assert ((first.log_ratio == 0) == on_path(first)).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tokens": 1}, "tokens"),
        ({"max_width": 9}, "max_width"),
        ({"max_nodes": 2}, "max_nodes"),
        ({"ece": float("nan")}, "ece"),
        ({"drift": ((5, 0.7), (5, 0.8))}, "drift"),
        ({"drift": ((0, -1.0),)}, "factor"),
        ({"class_factors": {"poetry": 0.5}}, "poetry"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict, word: str) -> None:
    config = replace(SMALL, **change)
    with pytest.raises(UserError, match=word):
        draw_recording(find_pair("adaserve-llama-70b"), config, np.random.default_rng(0))


def test_an_error_beyond_reach_and_an_unknown_pair_are_refused() -> None:
    with pytest.raises(UserError, match="most that this pair"):
        miscalibrated_odds(one_state(0.9995, 1.0), [0.5], 0.065)
    with pytest.raises(UserError, match="no pair is called"):
        find_pair("gpt-2")
