"""Trace readers: each format by a tiny sample, windows and speed, bad rows told by their line.

The public files themselves are read in `test_workload_public_traces`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.workload import TraceUse, WorkloadConfig, draw_arrivals, workload
from engine.workload.describe import cv_of_gaps
from engine.workload.traces import READERS, Trace, parse_source, read_source
from engine.workload.traces.servegen import QUANTILES, ServeGen

CSV = "arrival_s,prompt_tokens,output_tokens"


def source(text: str) -> Trace:
    parsed = parse_source(text)
    assert parsed is not None
    read = read_source(parsed)
    assert isinstance(read, Trace)
    return read


def packed(path: Path, text: str) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def classes_of(trace: Trace) -> list[str]:
    assert trace.slo_class is not None
    return [trace.class_names[c] if c >= 0 else "" for c in trace.slo_class]


# -- one sample of each format ---------------------------------------------------------------------


def test_plain_csv(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        f"\ufeffnote,{CSV},class\nx,10,5,7,coding\n\nx,10.5,6,0,chat\nx,12,7,9,\nx,14,8,2,chat\n"
    )
    trace = source(str(path))
    assert trace.arrival_s.tolist() == [0.0, 2.0, 4.0]  # on a clock from the first request
    assert trace.left_out == 1  # no output token: nobody could serve it
    assert trace.duration_s == 6.0  # a mean gap behind the last one
    assert trace.prompt_tokens is not None and trace.prompt_tokens.tolist() == [5, 7, 8]
    assert trace.output_tokens is not None and trace.output_tokens.tolist() == [7, 9, 2]
    assert classes_of(trace) == ["coding", "", "chat"]
    assert classes_of(source(f"{path}#chat")) == ["chat"]
    with pytest.raises(UserError, match=r"has no class 'chatt'; nearest is 'chat'"):
        source(f"csv:{path}#chatt")


AZURE = f"kind,{CSV}\ncode,5,100,10\ncode,7,90,3\nconv,4.5,20,300\nconv,6,21,30\n"


def test_azure_joined(tmp_path: Path) -> None:
    path = packed(tmp_path / "arrivals.csv.gz", AZURE)
    code, both = source(f"azure-code:{path}"), source(f"azure:{tmp_path}")
    assert code.arrival_s.tolist() == [0.0, 2.0] and classes_of(code) == ["coding"] * 2
    assert both.arrival_s.tolist() == [0.0, 0.5, 1.5, 2.5]
    assert classes_of(both) == ["chat", "coding", "chat", "coding"]
    assert both.prompt_tokens is not None and both.prompt_tokens.tolist() == [20, 100, 21, 90]


def test_azure_as_published(tmp_path: Path) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    code = tmp_path / "AzureLLMInferenceTrace_code.csv"
    code.write_text(
        header + "2023-11-16 23:59:59.5000000,100,10\n2023-11-17 00:00:01.0000000,9,3\n"
    )
    conv = tmp_path / "AzureLLMInferenceTrace_conv.csv"
    conv.write_text(header + "2023-11-16 23:59:59.0000000,20,30\n")
    assert source(f"azure-code:{code}").arrival_s.tolist() == [0.0, 1.5]  # over midnight
    both = source(f"azure:{tmp_path}")
    assert both.arrival_s.tolist() == [0.0, 0.5, 2.0]
    assert classes_of(both) == ["chat", "coding", "coding"]
    with pytest.raises(UserError, match="is one service; say azure-code"):
        source(f"azure:{code}")


def test_mooncake_groups_are_spread_over_their_step(tmp_path: Path) -> None:
    rows = "".join(f"conversation,{3 * (i // 50)}.0,700,{i + 1},0\n" for i in range(200))
    path = packed(tmp_path / "arrivals.csv.gz", f"kind,{CSV},reusable_prompt_tokens\n{rows}")
    trace = source(f"mooncake:{path}")
    assert trace.duration_s == 12.0 and classes_of(trace)[0] == "chat"
    window = trace.window(0.0, 6.0, 1.0, np.random.default_rng(0))
    assert len(window) == 100 and len(set(window.arrival_s.tolist())) == 100
    assert np.all(np.diff(window.arrival_s) >= 0)
    assert (window.arrival_s[:50] < 3.0).all() and (window.arrival_s[50:] >= 3.0).all()
    assert window.output_tokens is not None
    assert window.output_tokens.tolist() == list(range(1, 101))  # each keeps its own group
    assert cv_of_gaps(window.arrival_s) == pytest.approx(1.0, abs=0.3)
    assert cv_of_gaps(trace.arrival_s) > 5  # what the spread takes away


def test_mooncake_as_published(tmp_path: Path) -> None:
    path = tmp_path / "synthetic_trace.jsonl"
    line = '{"timestamp": %d, "input_length": 6955, "output_length": 52, "hash_ids": [1, 2]}\n'
    path.write_text(line % 250 + line % 1250)
    trace = source(f"mooncake-synthetic:{tmp_path}")
    assert trace.arrival_s.tolist() == [0.0, 1.0] and classes_of(trace) == ["summarization"] * 2
    path.write_text(line % 250 + "{}\n")
    with pytest.raises(UserError, match=r"jsonl, line 2 is no request"):
        source(f"mooncake-synthetic:{path}")


def test_adaserve(tmp_path: Path) -> None:
    rows = "a/1,3.5,28,256,chat,50.0,\na/1,4,100,256,coding,,1.2\nb/2,1,9,9,chat,50.0,\n"
    header = "trace,arrival_s,prompt_tokens,output_tokens,slo_class,tpot_slo_ms,tpot_slo_x_baseline"
    path = packed(tmp_path / "arrivals.csv.gz", f"{header}\n{rows}")
    trace = source(f"adaserve:{path}#a/1")
    assert trace.arrival_s.tolist() == [0.0, 0.5] and classes_of(trace) == ["chat", "coding"]
    with pytest.raises(UserError, match=r"holds 2 traces; choose one as adaserve:.*#a/1, of a/1"):
        source(f"adaserve:{path}")


def test_adaspec_has_no_lengths(tmp_path: Path) -> None:
    path = packed(tmp_path / "arrivals.csv.gz", "kind,arrival_s\nconv,0.0\nconv,1\ncode,73\n")
    trace = source(f"adaspec-conversation:{path}")
    assert trace.arrival_s.tolist() == [0.0, 1.0] and trace.prompt_tokens is None
    assert classes_of(source(f"adaspec-code:{path}")) == ["coding"]


def servegen(folder: Path) -> ServeGen:
    """Two clients, of which the second has no lengths, for two windows."""
    packed(
        folder / "clients.csv.gz",
        "model,client,window_s,rate_rps,cv,pattern,shape,scale\n"
        "m,1,0,4,1,Gamma,1,0.25\nm,1,600,2,1,Gamma,1,0.5\n"
        "m,2,0,1,3,Weibull,0.4,0.3\nother,1,0,9,1,Gamma,1,0.1\n",
    )
    names = [f"{kind}_p{q}" for kind in ("prompt", "output") for q in QUANTILES]
    values = [str(10 * (i + 1)) for i in range(len(names))]
    packed(
        folder / "lengths.csv.gz",
        f"model,client,window_s,{','.join(names)}\nm,1,0,{','.join(values)}\n",
    )
    parsed = parse_source(f"servegen:{folder}#m")
    assert parsed is not None
    read = read_source(parsed)
    assert isinstance(read, ServeGen)
    return read


def test_servegen_generates_its_rates(tmp_path: Path) -> None:
    clients = servegen(tmp_path)
    assert clients.duration_s == 1200.0
    assert clients.mean_rate_rps(0.0, 600.0) == pytest.approx(5.0)
    assert clients.mean_rate_rps(300.0, 900.0) == pytest.approx((300 * 5 + 300 * 2) / 600)
    drawn = [clients.window(0.0, 1200.0, 1.0, np.random.default_rng(s)) for s in range(8)]
    early = np.mean([(t.arrival_s < 600).sum() for t in drawn])
    late = np.mean([(t.arrival_s >= 600).sum() for t in drawn])
    assert early == pytest.approx(3000, rel=0.05) and late == pytest.approx(1200, rel=0.05)
    assert np.all(np.diff(drawn[0].arrival_s) >= 0)
    prompts, outputs = drawn[0].prompt_tokens, drawn[0].output_tokens
    assert prompts is not None and outputs is not None
    assert prompts.min() == 10 and prompts.max() == 130
    assert np.median(prompts) == pytest.approx(70, abs=4)  # the quantile p50
    assert np.median(outputs) == pytest.approx(200, abs=4)


def test_servegen_scales_rates_and_keeps_the_clock(tmp_path: Path) -> None:
    clients = servegen(tmp_path)
    use = TraceUse(f"servegen:{tmp_path}#m")
    counts = [
        len(use.draw(clients, 0.7, float("inf"), np.random.default_rng(seed))) for seed in range(20)
    ]
    assert np.mean(counts) == pytest.approx(0.7 * 1200, rel=0.05)
    cut = use.draw(clients, 0.7, 100.0, np.random.default_rng(0))
    assert cut.duration_s == 100.0 and cut.arrival_s.max() < 100.0
    with pytest.raises(UserError, match="at most 1,000,000 are possible"):
        use.draw(clients, 5000.0, float("inf"), np.random.default_rng(0))
    with pytest.raises(UserError, match=r"choose a model as servegen:.*#m, of m, other"):
        source(f"servegen:{tmp_path}")


# -- windows and speed -----------------------------------------------------------------------------


@pytest.fixture
def bursty(tmp_path: Path) -> Path:
    """200 requests in bursts, 100 s."""
    times = np.sort(np.concatenate([20.0 * (i // 40) + np.arange(40) * 0.1 for i in (0, 40, 80)]))
    times = np.concatenate([times, [60.0, 80.0, 99.0]])
    rows = "".join(f"{t:.3f},{20 + i},{5 + i % 7},chat\n" for i, t in enumerate(times))
    path = tmp_path / "bursty.csv"
    path.write_text(f"{CSV},class\n{rows}")
    return path


def test_load_stretches_time_and_keeps_the_shape(bursty: Path) -> None:
    own = draw_arrivals(workload(bursty), DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    config = workload(bursty, load=0.5)
    scaled = draw_arrivals(config, DEFAULT_CLASSES, 4.0, np.random.default_rng(0))
    assert len(scaled.arrival_s) == len(own.arrival_s)
    assert scaled.spans[0].rate_rps == pytest.approx(2.0)
    assert cv_of_gaps(scaled.arrival_s) == pytest.approx(cv_of_gaps(own.arrival_s))
    ratio = scaled.arrival_s[1:] / own.arrival_s[1:]
    assert ratio == pytest.approx(np.full(len(ratio), ratio[0]))
    assert scaled.prompt_tokens is not None and own.prompt_tokens is not None
    assert scaled.prompt_tokens.tolist() == own.prompt_tokens.tolist()


def test_a_window_is_cut_before_scaling_and_the_duration_after(bursty: Path) -> None:
    use = TraceUse(str(bursty), start_s=20.0, length_s=20.0)
    config = WorkloadConfig(trace=use, duration_s=float("inf"), rate_rps=4.0)
    arrivals = draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    assert len(arrivals.arrival_s) == 40 and arrivals.arrival_s[0] == 0.0
    assert arrivals.spans[0].end_s == pytest.approx(10.0)  # 40 requests at 4 a second
    short = WorkloadConfig(trace=use, duration_s=1.0, rate_rps=4.0)
    first = draw_arrivals(short, DEFAULT_CLASSES, 1.0, np.random.default_rng(0)).arrival_s
    assert first.tolist() == arrivals.arrival_s[arrivals.arrival_s < 1.0].tolist()
    with pytest.raises(UserError, match="no request from 500 s on"):
        draw_arrivals(
            WorkloadConfig(trace=TraceUse(str(bursty), start_s=500.0)),
            DEFAULT_CLASSES,
            1.0,
            np.random.default_rng(0),
        )


def test_drawn_starts_differ_by_seed(bursty: Path) -> None:
    use = TraceUse(str(bursty), draw_start=True)
    config = WorkloadConfig(trace=use, duration_s=30.0)

    def prompts(seed: int) -> list[int]:
        arrivals = draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(seed))
        assert arrivals.prompt_tokens is not None and arrivals.spans[0].end_s <= 30.0
        return arrivals.prompt_tokens.tolist()

    assert prompts(1) == prompts(1)
    assert len({tuple(prompts(seed)) for seed in range(6)}) > 3


def test_classes_are_mapped_or_drawn_from_the_mix(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{CSV},class\n0,5,5,gold\n1,5,5,\n")
    use = TraceUse(str(path))
    with pytest.raises(UserError, match="names the class 'gold'"):
        draw_arrivals(WorkloadConfig(trace=use), DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    mapped = TraceUse(str(path), classes={"gold": "summarization"})
    config = WorkloadConfig(trace=mapped, mix={"coding": 1.0})
    arrivals = draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    assert [DEFAULT_CLASSES.names[c] for c in arrivals.slo_class] == ["summarization", "coding"]


# -- what is wrong is told with its line -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a header"),
        (f"{CSV}\n", "has a header but no rows"),
        (f"{CSV}\n\n1,1,1\n0.5,1,1\n", "line 4: arrival_s is 0.5 after 1; expected times in order"),
        (f"{CSV}\n-1,1,1\n", "line 2: arrival_s is '-1'; expected a number of seconds from 0"),
        (f"{CSV}\n0,1,1\nnan,1,1\n", "line 3: arrival_s is 'nan'"),
        (f"{CSV}\ninf,1,1\n", "line 2: arrival_s is 'inf'"),
        (f"{CSV}\n0,1,1\n{CSV}\n", "line 3: arrival_s is 'arrival_s'"),
        (f"{CSV}\n0,,1\n", "line 2: prompt_tokens is ''"),
        (f"{CSV}\n0,1,2.5\n", "line 2: output_tokens is '2.5'; expected a whole number"),
        (f"{CSV}\n0,-3,2\n", "line 2: prompt_tokens is '-3'"),
        (f"{CSV}\n0,1,1e12\n", "line 2: output_tokens is '1e12'"),
        (f"{CSV}\n0,1\n", "line 2 has 2 cells; expected 3"),
        (
            "arrival_s,prompt_tokens,outputtokens\n0,1,1\n",
            "lacks the column output_tokens",
        ),
        (
            "arrival_s,arrival_s,prompt_tokens,output_tokens\n0,0,1,1\n",
            "arrival_s twice",
        ),
    ],
)
def test_bad_rows(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        source(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(b"not gzip")
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"arrival_s\n\xff\n")
    for path in (broken, latin):
        with pytest.raises(UserError, match="cannot read"):
            source(str(path))
    with pytest.raises(UserError, match=r"holds no arrivals\.csv\.gz"):
        source(f"adaserve:{tmp_path}")
    with pytest.raises(UserError, match="there is nothing at"):
        source(f"adaserve:{tmp_path}/none")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: workload("azure-cod:x"), "unknown trace 'azure-cod'; nearest is 'azure-code'"),
        (lambda: workload("azure-code:no/such"), "there is nothing at no/such"),
        (lambda: workload("none.csv"), "there is nothing at none.csv"),
        (lambda: TraceUse("steady"), "trace is 'steady'; expected NAME:PATH"),
        (lambda: TraceUse("a.csv", length_s=0.0), "length_s is 0"),
        (lambda: WorkloadConfig(trace=TraceUse("a.csv"), cv=2.0), "its trace has its own"),
        (lambda: WorkloadConfig(load=1.0, duration_s=float("inf")), "duration_s is inf"),
        (
            lambda: WorkloadConfig(trace=TraceUse("a.csv"), load=1.0, rate_rps=1.0),
            "a trace and load and rate_rps",
        ),
    ],
)
def test_bad_use(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_toml_file_names_a_trace_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"{CSV}\n0,5,5\n2,5,5\n")
    (tmp_path / "short.toml").write_text('trace = "mine.csv"\nload = 0.5\n')
    (tmp_path / "long.toml").write_text(
        '[trace]\nsource = "csv:mine.csv"\nstart_s = 1.0\nclasses = { a = "chat" }\n'
    )
    short, long = workload(tmp_path / "short.toml"), workload(tmp_path / "long.toml")
    assert short.trace is not None and short.trace.parsed.path == tmp_path / "mine.csv"
    assert short.load == 0.5 and short.duration_s == float("inf")
    assert long.trace is not None and long.trace.start_s == 1.0
    arrivals = draw_arrivals(short, DEFAULT_CLASSES, 2.0, np.random.default_rng(0))
    assert arrivals.arrival_s.tolist() == [0.0, 1.0]
    (tmp_path / "bad.toml").write_text('[trace]\nsource = "mine.csv"\nstrat_s = 1.0\n')
    with pytest.raises(UserError, match="trace: unknown key 'strat_s'; nearest is 'start_s'"):
        workload(tmp_path / "bad.toml")


def test_every_reader_says_what_it_reads() -> None:
    assert all(reader.summary for reader in READERS.values())
    assert "csv" in READERS and str(parse_source("azure:x#y")) == "azure:x#y"
