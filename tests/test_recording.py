"""A recording says of every place what the live engine would do there, whatever the plan.

On a tiny pair in float64, where equality is exact: the same prompts are served by the live engine
under fixed plans, and every iteration's accepted length is compared with a scan of the recording.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.replay.acceptance import accepted_lengths, mean_accepted, on_path
from engine.replay.recipe import Recipe, Task, choose_texts
from engine.replay.recorder import ANY_CLASS, Recorder
from engine.replay.recording import NEVER, ROOT, Recording, select_texts
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from engine.workload.prompt_set import PromptSet
from tests.linear_scan import scanned_length

LIMITS = Limits(slots=4, max_depth=4, max_width=4, max_nodes=16)
TOKENS = 20
TASKS = [Task(i % 2, tuple(range(3 + i, 12 + 2 * i)), i % 3 == 0) for i in range(3)]
PLANS = [(d, w, n) for d in (2, 4) for w in (1, 2, 3, 4) for n in (1, 5, 16)] + [(1, 4, 16)]
NODES = ("parent", "depth", "widths", "token", "probability", "log_ratio")


@pytest.fixture(scope="module")
def server() -> LiveServer:
    return tiny_server(seed=2, vocab=24, limits=LIMITS)


@pytest.fixture(scope="module")
def recorder(server: LiveServer) -> Recorder:
    return Recorder(server)


@pytest.fixture(scope="module")
def recording(recorder: Recorder) -> Recording:
    return recorder.record(TASKS, TOKENS)


class Fixed(Controller):
    """One plan for all; `seen` says what every iteration emitted, by request and tokens out."""

    def __init__(self, depth: int, width: int, nodes: int, margin: float = 1.0) -> None:
        self.shape, self.margin = (depth, width, nodes), margin
        self.seen: dict[tuple[int, int], tuple[int, bool]] = {}

    def plan(self, view: View) -> Plan:
        self.view = view
        return uniform_plan(view.limits, *self.shape, self.margin)

    def observe(self, outcome: Outcome) -> None:
        for slot in np.flatnonzero(outcome.ran):
            at = int(self.view.request[slot]), int(self.view.tokens_out[slot])
            self.seen[at] = int(outcome.accepted_length[slot]), bool(outcome.let_through[slot])


def served(server: LiveServer, controller: Fixed) -> list[list[int]]:
    """The tasks' answers under a controller."""
    requests = [Request(i, 0, list(task.prompt), TOKENS, 0.0) for i, task in enumerate(TASKS)]
    server.engine(requests, ANY_CLASS).serve(controller)
    return [request.output for request in requests]


def differences(r: Recording, seen: dict[tuple[int, int], tuple[int, bool]], plan: tuple) -> int:
    """At how many iterations the live engine emitted something else than the recording says."""
    return sum(
        length != scanned_length(r, text, root, *plan) for (text, root), (length, _) in seen.items()
    )


def test_the_live_engine_accepts_what_the_recording_says(
    server: LiveServer, recording: Recording
) -> None:
    lengths: dict[tuple[int, int, int], float] = {}
    for plan in PLANS:
        live = Fixed(*plan)
        outputs = served(server, live)
        for text, output in enumerate(outputs):
            start = int(recording.first_token[text] + recording.prompt_tokens[text])
            assert recording.tokens[start : start + TOKENS].tolist() == output
        assert len(live.seen) >= 3 * TOKENS // (plan[0] + 1)
        assert differences(recording, live.seen, plan) == 0
        lengths[plan] = float(np.mean([length for length, _ in live.seen.values()]))
    # The pair must disagree enough for this to mean anything: every axis changes what is accepted.
    assert lengths[4, 1, 1] < lengths[4, 1, 5] < lengths[4, 2, 16] < lengths[4, 4, 16]
    assert lengths[1, 4, 16] < lengths[2, 4, 16]


def test_every_place_is_as_live_starts_there(server: LiveServer, recording: Recording) -> None:
    plan = (4, 3, 9)
    start = int(recording.prompt_tokens[0])
    text = recording.tokens[: start + TOKENS].tolist()
    requests = [Request(i, 0, text[: start + i], TOKENS - i, 0.0) for i in range(TOKENS - 1)]
    live = Fixed(*plan)
    server.engine(requests, ANY_CLASS).serve(live)
    first = [live.seen[i, 0][0] for i in range(TOKENS - 1)]
    assert first == [scanned_length(recording, 0, i, *plan) for i in range(TOKENS - 1)]


def test_a_shuffled_width_mask_is_noticed(server: LiveServer, recording: Recording) -> None:
    rng = np.random.default_rng(0)
    shuffled = recording._replace(widths=rng.permutation(recording.widths))
    plan = (4, 3, 16)
    live = Fixed(*plan)
    served(server, live)
    assert differences(recording, live.seen, plan) == 0
    assert differences(shuffled, live.seen, plan) > 0


def test_nodes_in_another_order_are_noticed(server: LiveServer, recording: Recording) -> None:
    """The recording's order is the engine's rank: worse nodes first would fill small trees."""
    pairs = zip(recording.first_node[:-1], recording.first_node[1:], strict=True)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in pairs])
    turned = recording._replace(widths=recording.widths[order])
    plan = (4, 3, 5)
    live = Fixed(*plan)
    served(server, live)
    assert differences(turned, live.seen, plan) > 0


def let_through(r: Recording, text: int, root: int, plan: tuple[int, int, int], m: float) -> bool:
    """Whether a margin lets a token through where the tree of the plan leaves the text."""
    place = int(r.first_place[text]) + root
    first, end = r.first_node[place : place + 2].tolist()
    depth, width, nodes = plan
    inside = [
        i for i in range(first, end) if r.depth[i] <= depth and r.widths[i] >> (width - 1) & 1
    ][:nodes]
    path = on_path(r)
    node = ROOT
    while True:
        children = [i for i in inside if r.parent[i] == node]
        following = [i for i in children if path[i]]
        if not following:
            return any(r.log_ratio[i] >= np.log(m) for i in children)
        node = following[0] - first


def test_log_ratios_are_what_the_margin_rule_goes_by(
    server: LiveServer, recording: Recording
) -> None:
    plan, margin = (3, 4, 16), 0.4
    start = int(recording.prompt_tokens[0])
    text = recording.tokens[: start + TOKENS].tolist()
    # Far from the text's end, which cuts what is emitted.
    requests = [Request(i, 0, text[: start + i], TOKENS, 0.0) for i in range(TOKENS - 5)]
    live = Fixed(*plan, margin)
    server.engine(requests, ANY_CLASS).serve(live, max_iterations=200)
    got = [live.seen[i, 0][1] for i in range(TOKENS - 5)]
    assert got == [let_through(recording, 0, i, plan, margin) for i in range(TOKENS - 5)]
    assert 0 < sum(got) < len(got)


def test_what_is_recorded_hangs_on_neither_neighbours_nor_groups(
    recorder: Recorder, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.replay.recorder.PLACES_AT_ONCE", 5)
    alone = Recorder(recorder.server).record(TASKS[1:2], TOKENS)
    wanted = select_texts(recording, np.array([1]))
    for name in Recording._fields:
        got, expected = getattr(alone, name), getattr(wanted, name)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-3, err_msg=name)


def test_lengths_of_all_places_at_once_are_those_of_the_scan(recording: Recording) -> None:
    path = on_path(recording)
    for plan in ((4, 1, 4), (3, 4, 7)):
        lengths = accepted_lengths(recording, path, *plan)
        wanted = [
            scanned_length(recording, t, i, *plan) for t in range(3) for i in range(TOKENS - 1)
        ]
        assert lengths.tolist() == wanted
        assert 1.0 < mean_accepted(recording, lengths) < 1 + plan[0]


def test_a_pair_that_never_ends_its_answers_says_so(recording: Recording) -> None:
    assert recording.ended.tolist() == [NEVER] * 3
    assert recording.held_out.tolist() == [True, False, False]
    assert recording.text_class.tolist() == [0, 1, 0]
    assert (np.diff(recording.first_place) == TOKENS - 1).all()
    assert (recording.entropy > 0).all() and (recording.entropy < np.log(24)).all()


def test_a_server_without_a_head_cannot_be_recorded() -> None:
    other = tiny_server(limits=LIMITS, drafter="prompt-lookup")
    with pytest.raises(UserError, match="prompt-lookup cannot be recorded; expected eagle3"):
        Recorder(other)


def test_a_text_that_is_too_long_is_told(recorder: Recorder) -> None:
    with pytest.raises(UserError, match="exceed the context of"):
        recorder.record(TASKS, 400)


# -- which texts -----------------------------------------------------------------------------------

SETS = PromptSet(
    "here", {"a": ("one", "two", "three", "four"), "b": ("five", "six", "seven", "one")}
)


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_texts_are_chosen_once_and_split_by_prompt() -> None:
    recipe = Recipe(classes=("a", "b"), texts_per_class=3, prompt_tokens=9)
    tasks = choose_texts(recipe, SETS, ids)
    assert [task.text_class for task in tasks] == [0, 1, 0, 1, 0, 1]
    assert len({task.prompt for task in tasks}) == 6
    assert [task.held_out for task in tasks] == [False, False, True, True, False, False]
    shorter = Recipe(classes=("a", "b"), texts_per_class=2, prompt_tokens=9)
    assert choose_texts(shorter, SETS, ids) == tasks[:4]
    other = Recipe(classes=("a", "b"), texts_per_class=3, prompt_tokens=9, seed=1)
    assert choose_texts(other, SETS, ids) != tasks


def test_a_prompt_of_two_classes_is_taken_once_and_too_few_are_told() -> None:
    recipe = Recipe(classes=("a", "b"), texts_per_class=4, prompt_tokens=9)
    with pytest.raises(UserError, match="here has 3 prompts of the class 'b'"):
        choose_texts(recipe, SETS, ids)


def test_long_prompts_are_cut_inside_their_template() -> None:
    def templated(text: str) -> list[int]:
        return [1, *text.encode(), 2]

    recipe = Recipe(classes=("a",), texts_per_class=4, prompt_tokens=5)
    prompts = {task.prompt for task in choose_texts(recipe, SETS, templated)}
    assert (1, *b"thr", 2) in prompts and (1, *b"one", 2) in prompts
    with pytest.raises(UserError, match="has 3 prompts"):  # "t" twice
        choose_texts(Recipe(classes=("a",), texts_per_class=4, prompt_tokens=3), SETS, templated)


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        (Recipe(texts_per_class=0), "--texts-per-class 0: expected at least 1"),
        (Recipe(tokens=1), "--tokens 1: expected at least 2"),
        (Recipe(held_out_share=float("nan")), "--held-out-share nan"),
        (Recipe(seed=-1), "--seed -1"),
        (Recipe(classes=("a", "a")), "--classes a a: expected each class once"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_one_sentence(recipe: Recipe, says: str) -> None:
    with pytest.raises(UserError, match=says):
        recipe.check()
