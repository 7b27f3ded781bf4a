"""What algorithms emit, taken to tiers: presets, boxes and masks over one action table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.protocol import Limits
from policies.action_codec import (
    MOST_PRESETS,
    PLANS,
    BoxCodec,
    PresetCodec,
    TierCodec,
    codec_from_dict,
    presets_of,
)
from policies.action_mask import ActionMask
from policies.actions import ActionTable, sized_tiers
from policies.features import feature_table

TABLE = ActionTable(DEFAULT_CLASSES.names)
STRICT = presets_of(TABLE, [("coding",), ("chat", "summarization")])
GLOBAL = presets_of(TABLE, [TABLE.class_names])


def test_presets_are_all_pairs_of_the_plans() -> None:
    plans = ((0, 1, 2), *PLANS)
    assert STRICT.outputs == len(plans) ** 2 == MOST_PRESETS and GLOBAL.outputs == len(plans)
    assert len({tuple(row) for row in STRICT.presets.tolist()}) == MOST_PRESETS
    for number in (0, 1, 16, 77, 255):
        plan = TABLE.decode(STRICT.decode(np.array([number]))[0])
        strict, rest = divmod(number, len(plans))
        wished = [plans[strict], plans[rest], plans[rest]]
        assert list(zip(plan.depth, plan.width, plan.nodes, strict=True)) == wished
    assert (STRICT.presets[0] == 0).all(), "speculation off is preset 0"
    both = GLOBAL.decode(np.array([[3], [5]]))
    assert (both == GLOBAL.presets[[3, 5]]).all()


def test_a_table_without_some_tiers_has_fewer_presets() -> None:
    small = ActionTable(("a", "b"), depths=(0, 2, 5), widths=(1, 2), nodes=(2, 4))
    codec = presets_of(small, [("b",), ("a",)])
    assert codec.plans == ((0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0))
    assert (codec.decode(np.array([1]))[0] == [1, 0, 0, 0, 0, 0, 0, 0]).all()  # a is of the rest


def test_values_choose_the_preset_of_most() -> None:
    values = np.zeros(STRICT.outputs, np.float32)
    values[[40, 200]] = 1.0, 2.0
    assert (STRICT.choose(values) == STRICT.presets[200]).all()


@given(st.integers(0, 2**32 - 1))
def test_a_box_cuts_into_equal_parts(seed: int) -> None:
    codec = BoxCodec(TABLE)
    assert codec.outputs == 9  # a margin has a single tier, so no number
    drawn = np.random.default_rng(seed).uniform(-1.2, 1.2, (5, 9)).astype(np.float32)
    tiers = codec.decode(drawn)
    counts = [6, 4, 5] * 3
    for row, numbers in zip(tiers.reshape(5, 3, 4), drawn.reshape(5, 3, 3), strict=True):
        assert (row[:, 3] == 0).all()
        for tier, number, count in zip(row[:, :3].ravel(), numbers.ravel(), counts, strict=True):
            low, high = -1 + 2 * tier / count, -1 + 2 * (tier + 1) / count
            inside = min(max(float(number), -1.0), 1.0)
            assert low - 1e-6 <= inside <= high + 1e-6
    outputs = np.random.default_rng(seed).normal(size=9).astype(np.float32)
    assert (codec.choose(outputs) == codec.decode(np.tanh(outputs)[None])[0]).all()


def test_a_box_reaches_every_tier() -> None:
    codec = BoxCodec(TABLE)
    ends = codec.decode(np.array([[-1.0] * 9, [1.0] * 9]))
    assert (ends[0] == 0).all() and (ends[1] == TABLE.nvec - 1).all()


def test_tiers_are_what_they_are() -> None:
    codec = TierCodec(TABLE)
    actions = np.arange(12)[None]
    assert codec.decode(actions) is actions
    logits = np.zeros(codec.outputs, np.float32)
    logits[[4, 8]] = 1.0  # depth 4 and width 4 of the first class
    assert (codec.choose(logits) == [4, 2, *[0] * 10]).all()


@pytest.mark.parametrize(
    ("codec", "actions"),
    [
        (STRICT, np.array([256])),
        (STRICT, np.array([-1])),
        (STRICT, np.array([0.0])),
        (BoxCodec(TABLE), np.zeros((2, 8))),
        (BoxCodec(TABLE), np.full((1, 9), np.nan)),
    ],
)
def test_what_is_no_action_is_refused(codec: Any, actions: np.ndarray) -> None:
    with pytest.raises(UserError, match="expected"):
        codec.decode(actions)


def test_a_choice_of_shares_is_one_more_number_and_comes_with_every_preset() -> None:
    table = sized_tiers(TABLE.class_names)
    box, tiers = BoxCodec(table), TierCodec(table)
    assert (box.outputs, tiers.outputs) == (10, BoxCodec(TABLE).outputs // 3 * 16 + 7)
    assert (box.decode(np.array([[-1.0] * 9 + [1.0]]))[0] == table.neutral).all()
    assert (box.choose(box.middle(table.neutral)) == table.neutral).all()
    logits = np.zeros(tiers.outputs, np.float32)
    logits[-6] = 1.0
    assert (tiers.choose(logits) == [*[0] * 12, 1]).all()
    presets = presets_of(table, [table.class_names])
    plain = np.repeat(GLOBAL.presets, 7, axis=0)
    assert (presets.presets == np.column_stack([plain, np.tile(np.arange(7), 16)])).all()
    assert (presets.decode(np.array([7 * 3 + 5])) == [[*GLOBAL.presets[3], 5]]).all()
    assert codec_from_dict(presets.to_dict(), table) == presets
    with pytest.raises(UserError, match=r"7 shares of the slots, are 1792 presets; .* fewer"):
        presets_of(table, STRICT.groups)


@pytest.mark.parametrize("codec", [TierCodec(TABLE, masked=True), STRICT, GLOBAL, BoxCodec(TABLE)])
def test_a_codec_returns_from_its_dictionary(codec: Any) -> None:
    assert codec_from_dict(codec.to_dict(), TABLE) == codec


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "tree"}, "expected one of tiers, presets, box"),
        ({"kind": ["box"]}, "expected one of tiers, presets, box"),
        ({"version": 2}, "presets of version 2"),
        ({"plans": [[0, 0, 0, 0], [1, 0, 0, 0]]}, "does not match its hash"),
        ({"plans": [[1, 0, 0, 0]]}, "expected depth 0 first"),
        ({"plans": [[0, 0, 0, 0], [9, 0, 0, 0]]}, "expected tier indices"),
        ({"plans": [[0, 0, 0, [0]]]}, "expected tier indices"),
        ({"plans": 3}, "no lists of lists"),
        ({"groups": [["coding"], ["chat"]]}, "expected each of the classes"),
        ({"groups": [["coding", 1], ["chat"]]}, "expected class names as text"),
        ({"extra": 1}, "its own keys"),
    ],
)
def test_changed_codecs_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        codec_from_dict(STRICT.to_dict() | change, TABLE)


def test_more_presets_than_fit_are_refused() -> None:
    with pytest.raises(UserError, match="expected at most 256"):
        PresetCodec(TABLE, (("coding",), ("chat",), ("summarization",)), STRICT.plans)


def test_a_mask_leaves_absent_classes_their_lowest_tiers() -> None:
    features = feature_table(TABLE.class_names)
    names = [feature.name for feature in features]
    mask = ActionMask(TABLE, features, Limits(max_depth=4, max_width=2, max_nodes=8))
    rows = np.zeros((4, len(names)), np.float32)
    rows[1, names.index("chat.active")] = 0.25
    rows[2, names.index("coding.queued")] = 0.1
    rows[3, names.index("engine.prefilling")] = 0.25
    legal = mask.legal(rows).reshape(4, 3, -1)  # by class: 6 depths, 4 widths, 5 nodes, 1 margin
    absent = [*(1, 0, 0, 0, 0, 0), *(1, 0, 0, 0), *(1, 0, 0, 0, 0), 1]
    present = [*(1, 1, 1, 1, 1, 0), *(1, 1, 0, 0), *(1, 1, 1, 0, 0), 1]
    expected = [
        [absent, absent, absent],
        [absent, present, absent],
        [present, absent, absent],
        [present, present, present],
    ]
    assert (legal == np.array(expected, np.bool_)).all()
    assert (mask.legal(rows[1]) == legal[1].ravel()).all()
    sized = ActionMask(sized_tiers(TABLE.class_names), features, Limits(16, 4, 2, 8)).legal(rows)
    assert (sized[:, :-7] == legal.reshape(4, -1)).all() and sized[:, -7:].all()


def test_limits_below_the_lowest_tiers_leave_those() -> None:
    features = feature_table(TABLE.class_names)
    mask = ActionMask(TABLE, features, Limits(max_depth=0, max_width=1, max_nodes=1))
    legal = mask.legal(np.ones(len(features), np.float32)).reshape(3, -1)
    assert (legal.sum(axis=1) == 4).all()
