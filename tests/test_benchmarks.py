"""The arithmetic of the benchmark, its table, its file and its exit code, on tiny networks.

What the figures are on the real model is the benchmark's business; no time is asserted here.
"""

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import acceptance, fresh_clone, overhead, ratios, speed, spine
from benchmarks.acceptance import Answer, before_loop, loop_start
from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, serve
from benchmarks.figures import Bar, Figure, MissingHardwareError, Result, judged, unmeasured
from benchmarks.fresh_clone import Clones, outcomes, skip_reasons
from benchmarks.network_clock import network_clock
from benchmarks.prompts import MAX_PROMPT_TOKENS, PromptFolder
from benchmarks.results import Results
from benchmarks.show import Show
from engine.errors import UserError
from engine.serving import LiveServer
from engine.tiny import tiny_server
from policies.registry import make

ROOT = Path(__file__).resolve().parents[1]
VOCAB = 16


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Tiny networks with room for an answer of 192 tokens, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, VOCAB, capacity_tokens=320)
    torch.set_num_threads(threads)


def prompts(name: str, count: int = 24) -> list[list[int]]:
    """The same made-up prompts for the same name."""
    rng = np.random.default_rng(len(name))
    return [rng.integers(0, VOCAB, rng.integers(4, 12)).tolist() for _ in range(count)]


@pytest.fixture
def bench(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A quick bench on the tiny server; its reference is the server's own ordinary decoding."""
    monkeypatch.setattr(speed, "TOKENS", 12)
    monkeypatch.setattr(acceptance, "QUICK_ITERATIONS", 200)

    def generate(prompt: list[int], count: int) -> list[int]:
        return serve(server, requests_of([prompt], count - 1), make("autoregressive")).outputs[0]

    return Bench(
        load_server=lambda: server,
        load_prompts=lambda name, _: prompts(name),
        load_reference=lambda _: generate,
        clones=Clones(ROOT),
        quick=True,
    )


# -- figures, bars and rows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        (Bar("≥", 3.1), 3.1, True),
        (Bar("≥", 3.1), 3.09, False),
        (Bar("<", 12, "min"), 12.0, False),
        (Bar("≤", 5, "%"), 5.0, True),
        (Bar("≤", 5, "%"), float("nan"), False),
    ],
)
def test_a_bar_is_kept_or_missed(bar: Bar, value: float, holds: bool) -> None:
    assert bar.holds(value) is holds


def test_status_of_a_row() -> None:
    figure = Figure("f", "title", Bar("≤", 2.5, "ms", "≤ 7 % of a step"), "m:f")
    assert str(figure.bar) == "≤ 2.5 ms, or ≤ 7 % of a step"
    assert judged(figure, Result(2.0, "2 ms")).status == "holds"
    assert judged(figure, Result(3.0, "3 ms")).status == "missed"
    assert judged(figure, Result(3.0, "3 ms", meets_alternative=True)).status == "holds"
    broken = judged(figure, Result(2.0, "2 ms", note="a note", broken="a test failed"))
    assert (broken.status, broken.note) == ("missed", "a test failed. a note")
    barless = dataclasses.replace(figure, bar=None)
    assert judged(barless, Result(9.0, "9")).status == "reported"
    assert not unmeasured(figure, "no data").passes
    assert unmeasured(figure, "one core", excused=True).passes


def test_the_issues_bars_are_all_there() -> None:
    bars = {figure.name: str(figure.bar) for figure in spine.FIGURES if figure.bar}
    assert bars == {
        "make_train": "< 12 min",
        "make_test": "< 8 min",
        "acceptance_gsm8k": "≥ 3.1",
        "acceptance_humaneval": "≥ 2.6",
        "acceptance_mt_bench": "≥ 2.2",
        "acceptance_alpaca": "≥ 2.2",
        "acceptance_average": "≥ 2.4",
        "batch1": "≥ 1.4",
        "transformers": "≥ 1.5",
        "batch8": "≥ 1.2",
        "draft_step": "≤ 2.5 ms, or ≤ 7 % of a one-token target step",
        "overhead": "≤ 5 %",
    }


def test_only_takes_names_and_beginnings() -> None:
    def names(*only: str) -> list[str]:
        return [figure.name for figure in spine.selected(spine.FIGURES, only)]

    assert names() == [figure.name for figure in spine.FIGURES]
    assert names("overhead", "make") == ["make_train", "make_test", "overhead"]
    assert names("acceptance_alpaca") == ["acceptance_alpaca", "acceptance_average"]
    assert len(names("acceptance")) == 6
    with pytest.raises(UserError, match="did you mean batch8"):
        names("batch9")


# -- ratios ----------------------------------------------------------------------------------------


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    rng = np.random.default_rng(0)
    ratio = ratios.of_sums(np.array([30.0, 1.0]), np.array([10.0, 1.0]), rng)
    assert ratio.value == pytest.approx(31 / 11)
    assert ratio.low <= ratio.value <= ratio.high
    assert (ratio.low, ratio.high) == (1.0, 3.0)  # one of the two drawn twice


def test_equal_units_leave_no_doubt_and_one_unit_tells_nothing() -> None:
    rng = np.random.default_rng(0)
    ones = np.ones(5)
    assert ratios.of_rates(2 * ones, ones, ones, ones, rng) == (2.0, 2.0, 2.0)
    assert str(ratios.of_sums(ones[:1], ones[:1], rng)) == "1.00"
    assert np.isnan(ratios.of_sums(ones[:0], ones[:0], rng).value)


# -- acceptance ------------------------------------------------------------------------------------


def test_a_loop_begins_where_24_tokens_are_said_again() -> None:
    fresh = list(range(50))
    assert loop_start(fresh) == 50
    assert loop_start([*fresh, *fresh]) == 74  # the 24th of the second round
    assert loop_start([*fresh, *[7] * 60]) == 50 + 1 + 24
    answer = Answer([1], [*fresh, *fresh], starts=[1, 40, 73, 74], emitted=[39, 33, 1, 26])
    assert before_loop(answer) == [39, 33, 1]


def test_acceptance_counts_what_the_engine_counts(bench: Bench, server: LiveServer) -> None:
    made = acceptance.measure(bench, "gsm8k")
    raw = made.raw
    assert made.value == pytest.approx(raw["emitted_tokens"] / raw["request_iterations"])
    assert 1.0 <= made.value <= 7.0
    assert (
        acceptance.QUICK_ITERATIONS <= raw["request_iterations"] < acceptance.QUICK_ITERATIONS + 16
    )
    assert not made.broken
    # every iteration emits its accepted positions and one more, but for cut ends
    assert raw["emitted_tokens"] <= sum(raw["accepted_by_depth"]) + raw["request_iterations"]
    assert raw["proposed_by_depth"][0] <= raw["request_iterations"]
    assert raw["proposed_by_depth"][6:] == [0, 0]


def test_an_exhausted_set_goes_on_with_its_answers_then_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 60)
    bench.load_prompts = lambda name, _: [[1] * 130, [4, 5] * 66]
    tally = acceptance.collect(bench, "alpaca", bench.prompts("alpaca"), 10**6)
    # 320 rows, 65 of them for tree and root: two rounds of 61 tokens fit behind 132, not three
    assert [len(a.tokens) for a in tally.answers] == [122, 122]
    assert [sum(a.emitted) for a in tally.answers] == [120, 120]
    assert tally.count == sum(len(a.emitted) for a in tally.answers)
    monkeypatch.setattr(acceptance, "collect", lambda *_: tally)
    made = acceptance.measure(bench, "alpaca")
    assert made.broken == f"the set is exhausted after {tally.count} of 200 iterations"


def test_answers_go_on_where_they_were_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 20)
    in_parts = acceptance.collect(bench, "x", [[1, 2, 3]], 40).answers[0]
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 80)
    whole = acceptance.collect(bench, "x", [[1, 2, 3]], 40).answers[0]
    shorter = min(len(in_parts.tokens), len(whole.tokens))
    assert shorter > 21
    assert in_parts.tokens[:shorter] == whole.tokens[:shorter]


def test_the_average_needs_every_set(bench: Bench) -> None:
    figures = [Figure(f"acceptance_{n}", n, None, "m:f") for n in "ab"]
    row = judged(figures[0], Result(2.0, "2"))
    bench.rows = {row.name: row}
    with pytest.raises(UserError, match="needs acceptance_b, not measured"):
        acceptance.average(bench, "acceptance_a acceptance_b")
    other = judged(figures[1], Result(3.0, "3"))
    bench.rows = {row.name: row, other.name: other}
    assert acceptance.average(bench, "acceptance_a acceptance_b").value == 2.5


# -- speed -----------------------------------------------------------------------------------------


def test_batch_1_reports_on_prompts_that_chose_nothing(bench: Bench) -> None:
    one, two = speed.split_prompts(bench, speed.SETS, 2, 3)
    assert [name for name, _ in one] == ["gsm8k", "humaneval"] * 2
    assert len(two) == 6
    assert not [p for p in two if p in one]
    made = speed.batch1(bench, "gsm8k humaneval")
    best, rates = made.raw["best"], made.raw["tokens_per_s"]
    assert best in speed.QUICK_TREES
    assert made.value == pytest.approx(rates[best] / rates["autoregressive"])
    assert made.raw["same_text"] == "4 of 4"  # float64: a tree changes nothing
    assert set(made.raw["tried_tokens_per_s"]) == set(speed.QUICK_TREES)


def test_who_goes_first_rotates(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = speed.serve

    def noted(server: Any, requests: Any, controller: Any, running: int = 1) -> Any:
        order.append(controller.name)
        return real(server, requests, controller, running)

    monkeypatch.setattr(speed, "serve", noted)
    monkeypatch.setattr(speed, "TOKENS", 4)
    found = speed.in_turns(bench, "", [[p] for p in prompts("x", 3)], ("chain(1)", "chain(2)"), 1)
    assert order == ["chain(1)", "chain(2)", "chain(2)", "chain(1)", "chain(1)", "chain(2)"]
    assert [s.tokens for s in found["chain(1)"]] == [4, 4, 4]


def test_batch_8_counts_iterations_with_all_eight_busy(bench: Bench) -> None:
    made = speed.batch8(bench, "gsm8k humaneval")
    best, rates = made.raw["best"], made.raw["tokens_per_s"]
    assert made.value == pytest.approx(rates[best] / rates["autoregressive"])
    served = serve(bench.server, requests_of(prompts("x", 8), 5), make("autoregressive"), 8)
    assert (served.tokens, served.full_tokens, served.full_iterations) == (40, 40, 5)
    served = serve(bench.server, requests_of(prompts("x", 9), 5), make("autoregressive"), 8)
    assert (served.tokens, served.full_tokens, served.iterations) == (45, 40, 10)


def test_transformers_is_compared_on_equal_counts(bench: Bench) -> None:
    asked: list[int] = []
    generate = bench.load_reference(bench.server)

    def noted(prompt: list[int], count: int) -> list[int]:
        asked.append(count)
        return generate(prompt, count)

    bench.load_reference = lambda _: noted
    made = speed.transformers(bench, "gsm8k humaneval")
    tokens = made.raw["new_tokens"]
    assert asked[1:] == [1, tokens + 1] * 4
    assert made.raw["same_text"] == "4 of 4"
    times = made.raw["decode_seconds"]
    assert made.value == pytest.approx(sum(times["transformers"]) / sum(times["draftgym"]))


# -- draft step and overhead -----------------------------------------------------------------------


def test_draft_step_is_a_fifth_of_what_six_cost_over_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = overhead.draft_step(bench, "gsm8k")
    step, target = made.raw["step_ms"]["width_1"], made.raw["one_token_target_step_ms"]
    assert made.value == step
    assert made.raw["share_of_target_step"] == pytest.approx(step / target)
    assert made.raw["iterations_each"] >= overhead.QUICK_BLOCKS - overhead.SKIPPED
    # with times made up: 4 ms for a first step, 2 for every other
    real = overhead.iterations

    def timed(engine: Any, controller: Any) -> Iterator[Any]:
        for outcome in real(engine, controller):
            depth = controller.inner.planned[-1]
            draft_s = 0.004 + 0.002 * (depth - 1) if depth else 0.0
            yield outcome._replace(draft_s=draft_s, verify_s=0.05)

    monkeypatch.setattr(overhead, "iterations", timed)
    made = overhead.draft_step(bench, "gsm8k")
    assert made.value == pytest.approx(2.0)
    assert made.raw["share_of_target_step"] == pytest.approx(0.04)
    assert made.meets_alternative


def test_overhead_is_what_the_networks_leave(bench: Bench) -> None:
    made = overhead.overhead(bench, "gsm8k humaneval")
    raw = made.raw
    whole, networks = np.array(raw["iteration_ms"]), np.array(raw["network_ms"])
    assert raw["batch"] == 16
    assert len(whole) == overhead.QUICK_FULL_ITERATIONS
    assert (networks > 0).all()
    assert (networks < whole).all()
    assert made.value == pytest.approx(100 * (whole - networks).sum() / whole.sum())


def test_the_network_clock_leaves_no_trace(server: LiveServer) -> None:
    before = server.decoder.logits
    with network_clock(server) as clock:
        serve(server, requests_of(prompts("x", 1), 3), make("chain(2)"))
        assert clock.take() > 0
        assert clock.take() == 0
    assert server.decoder.logits == before
    assert "forward" not in vars(server.head)


# -- prompts ---------------------------------------------------------------------------------------


class Words:
    """A tokenizer of words whose template adds two."""

    def chat_prompt(self, user: str) -> list[int]:
        return [0, *(len(word) for word in user.split()), 0]


def test_prompts_fit_and_articles_are_used_up(tmp_path: Path) -> None:
    import gzip

    article = " ".join(["Summarize:", *["word"] * 1200])
    rows = [
        {"category": "summarization", "turns": [article]},
        {"category": "summarization", "turns": ["Summarize: three short words"]},
        {"category": "writing", "turns": ["no article"]},
    ]
    with gzip.open(tmp_path / "spec_bench.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    with gzip.open(tmp_path / "gsm8k.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps({"turns": [" ".join(["x"] * n)]}) + "\n" for n in (600, 3))
    folder = PromptFolder(tmp_path, Words())  # type: ignore[arg-type]
    found = folder.ids("summarization")
    # first pieces first; the rest of the article begins as a prompt of its own
    assert sorted(len(p) for p in found[:2]) == [6, MAX_PROMPT_TOKENS]
    assert [len(p) for p in found[2:]] == [MAX_PROMPT_TOKENS, 1200 - 509 - 509 + 3][
        : len(found) - 2
    ]
    assert len(found) >= 3
    assert sorted(map(len, folder.ids("gsm8k"))) == [5, MAX_PROMPT_TOKENS]
    assert folder.ids("gsm8k") == folder.ids("gsm8k")
    with pytest.raises(UserError, match="no prompts at"):
        folder.ids("alpaca")


# -- fresh clones ----------------------------------------------------------------------------------

MAKEFILE = """
train:
	@read line && exit 3 || true
	@test -z "$$MAKELEVEL" || test "$$MAKELEVEL" = 1
	@mkdir -p runs/one/controller "$$DRAFTGYM_CACHE"
	@echo '{}' > runs/one/controller/manifest.json
test:
	@echo 'SKIPPED [2] tests/test_x.py:12: needs a GPU'
	@echo '7 passed, 2 skipped in 1.25s'
"""


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a repository with one commit of the given Makefile."""
    if not (shutil.which("git") and shutil.which("make")):
        pytest.skip("needs git and make")

    def build(makefile: str) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        (folder / "Makefile").write_text(makefile)
        who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        return folder

    return build


@pytest.fixture
def cloned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose clones do not need two cores."""
    monkeypatch.setattr(fresh_clone, "_usable_cores", lambda: [0, 1])
    return bench


def test_make_in_fresh_clones(cloned: Bench, repository: Callable[[str], Path]) -> None:
    cloned.clones = Clones(repository(MAKEFILE), reuse=True)
    train = fresh_clone.make_train(cloned, "")
    assert not train.broken, train.raw
    assert train.raw["exported"] == ["runs/one/controller/manifest.json"]
    tests = fresh_clone.make_test(cloned, "")
    assert not tests.broken, tests.raw
    assert tests.raw["outcomes"] == {"passed": 7, "skipped": 2}
    assert "7 passed, 2 skipped (needs a GPU)" in tests.note
    assert "in the clone of make train" in tests.note
    kept = list(cloned.clones._kept)
    assert len(kept) == 1
    cloned.clones.close()
    assert not kept[0].exists()


@pytest.mark.parametrize(
    ("makefile", "says"),
    [
        ("train:\n\t@echo went wrong; exit 1\n", "make train ended with exit code 2: make: "),
        ("train:\n\t@true\n", "manifest.json is not there"),
    ],
)
def test_make_train_that_fails_holds_no_bar(
    cloned: Bench, repository: Callable[[str], Path], makefile: str, says: str
) -> None:
    cloned.clones = Clones(repository(makefile))
    made = fresh_clone.make_train(cloned, "")
    assert says in made.broken
    assert judged(spine.FIGURES[0], made).status == "missed"
    assert not cloned.clones._kept


def test_make_that_hangs_is_ended(cloned: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    made = fresh_clone.make(cloned, folder, words, {}, limit_s=0.01)
    assert made.timed_out
    assert made.code < 0


def test_one_core_is_missing_hardware(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_clone, "_usable_cores", lambda: [0])
    row = spine.measure(spine.FIGURES[0], bench)
    assert (row.status, row.passes) == ("excused", True)


def test_pytests_summary_is_read() -> None:
    text = (
        "SKIPPED [1] tests/a.py:3: no data at x: name it\n"
        "SKIPPED [2] tests/b.py:5: unconditional skip\n"
        "1 failed, 9 passed, 3 skipped, 1 error in 61.20s (0:01:01)\n"
        "make: *** [Makefile:1: test] Error 1\n"
    )
    assert outcomes(text) == {"failed": 1, "passed": 9, "skipped": 3, "error": 1}
    assert skip_reasons(text) == [("tests/a.py:3", "no data at x: name it"), ("tests/b.py:5", "")]
    assert outcomes("nothing") == {}


# -- the command, its table and its file -----------------------------------------------------------


def good(bench: Bench, argument: str) -> Result:
    """Measured above its bar."""
    return Result(2.0, "2.00", note=argument, raw={"x": np.float64(2), "y": float("nan")})


def poor(bench: Bench, argument: str) -> Result:
    """Measured below its bar."""
    return Result(0.5, "0.50")


def lacking(bench: Bench, argument: str) -> Result:
    """No such hardware."""
    raise MissingHardwareError("no such hardware")


def blind(bench: Bench, argument: str) -> Result:
    """No data."""
    raise UserError("no data")


def figures(*names: str) -> tuple[Figure, ...]:
    """Figures measured by the functions above."""
    return tuple(
        Figure(name, f"figure {name}", Bar("≥", 1), f"tests.test_benchmarks:{name}", "a note")
        for name in names
    )


def run_main(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, of: tuple[Figure, ...], *words: str
) -> int:
    """Exit code of the command with other figures and a tiny bench."""
    monkeypatch.setattr(spine, "FIGURES", of)
    monkeypatch.setattr(spine, "new_bench", lambda config: bench)
    monkeypatch.setattr(sys, "argv", ["spine.py", *words])
    try:
        spine.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("good",), 0),
        (("good", "lacking"), 0),
        (("good", "poor"), 1),
        (("good", "blind"), 1),
    ],
)
def test_check_exits_1_for_what_is_missed_or_unmeasured(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    names: tuple[str, ...],
    code: int,
) -> None:
    out = str(tmp_path / "spine.json")
    assert run_main(bench, monkeypatch, figures(*names), "--check", "--out", out) == code
    assert run_main(bench, monkeypatch, figures(*names), "--out", out) == 0


def test_a_figure_never_measured_exits_1(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--check", "--out", str(tmp_path / "spine.json"))
    of = (*figures("good"), *figures("lacking"))
    assert run_main(bench, monkeypatch, of, *words, "--only", "good") == 1
    assert run_main(bench, monkeypatch, of, *words, "--only", "lacking") == 0  # good is in the file


def test_rows_stream_to_a_pipe_and_the_file_keeps_them(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "deep" / "spine.json"
    run_main(bench, monkeypatch, figures("good", "poor", "blind"), "--out", str(out))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "| figure | value | bar | holds |",
        "| --- | --- | --- | --- |",
        "| figure good | 2.00 | ≥ 1 | yes |",
        "| figure poor | 0.50 | ≥ 1 | NO |",
        "| figure blind | – | ≥ 1 | NO, unmeasured |",
    ]
    assert any("figure blind (quick): no data" in line for line in lines)
    assert lines[-1] == f"3 figures: 1 missed, 1 unmeasured. Results: {out}"
    data = json.loads(out.read_text())
    row = data["figures"]["good"]
    assert row["raw"] == {"x": 2.0, "y": None}
    assert data["runs"][row["run"]]["versions"]["hardware"]["cores"] >= 1
    assert data["runs"][row["run"]]["command"][0] == "spine.py"
    assert [p.name for p in out.parent.iterdir()] == ["spine.json"]


def test_a_stopped_run_keeps_what_it_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "spine.json"
    of = figures("good", "poor")
    monkeypatch.setitem(globals(), "poor", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_main(bench, monkeypatch, of, "--out", str(out))
    assert list(Results.load(out).rows) == ["good"]


def test_a_later_run_replaces_only_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "spine.json"
    one, two = (judged(f, Result(2.0, "2")) for f in figures("good", "poor"))
    first = Results.load(path)
    first.add(one, "monday", {"versions": 1})
    first.add(two, "monday", {"versions": 1})
    later = Results.load(path)
    later.add(dataclasses.replace(two, value="3"), "tuesday", {"versions": 2})
    merged = Results.load(path)
    assert {n: (r.run, r.value) for n, r in merged.rows.items()} == {
        "good": ("monday", "2"),
        "poor": ("tuesday", "3"),
    }
    later.add(one, "tuesday", {"versions": 2})
    assert list(Results.load(path).runs) == ["tuesday"]  # nothing comes from Monday any more


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}', '{"format": 1, "figures": {"a": 3}}'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spine.json"
    path.write_text(text)
    with pytest.raises(UserError, match="holds no results"):
        Results.load(path)
    assert path.read_text() == text


def test_a_terminal_gets_a_drawn_table(bench: Bench, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    show = Show(console, Console(file=io.StringIO()))
    of = figures("good", "poor")
    spine.run(of, of, bench, Results(tmp_path / "x.json"), show)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "─" in text
    assert text.count("figure good") >= 2  # as it came, and in the table


def test_help_is_light() -> None:
    probe = (
        "import runpy, sys; sys.argv = ['spine', '--help']\n"
        "try: runpy.run_module('benchmarks.spine', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "--only" in text
    assert not {"torch", "numba", "transformers", "scipy"} & set(loaded.split())
