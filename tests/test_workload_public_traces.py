"""The public traces where they are: what their READMEs say of them is what the readers find."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.workload import draw_arrivals, workload
from engine.workload.describe import cv_of_gaps
from engine.workload.traces import Trace, need_source, read_source

DATA = Path(os.environ.get("DRAFTGYM_SHARED") or Path(__file__).parents[2] / "shared" / "data")


def needs(folder: str) -> Path:
    """A folder of the public traces; skips where it is not there."""
    if not (DATA / folder).is_dir():
        pytest.skip(f"the public trace {folder} is not at {DATA}; set DRAFTGYM_SHARED to have it")
    return DATA / folder


def adaserve(path: Path, part: str) -> Trace:
    read = read_source(need_source(f"adaserve:{path}#{part}"))
    assert isinstance(read, Trace)
    return read


@pytest.mark.parametrize(
    ("name", "folder", "rate", "cv", "median_prompt", "median_output"),
    [
        ("azure-code", "azure2023", 2.6, 13.0, 1469, 13),
        ("azure-conversation", "azure2023", 5.5, 1.09, 1020, 129),
        ("mooncake", "mooncake", 3.4, 1.0, 6909, 350),
    ],
)
def test_real_traces_are_as_their_readmes_say(
    name: str, folder: str, rate: float, cv: float, median_prompt: int, median_output: int
) -> None:
    config = workload(f"{name}:{needs(folder)}")
    arrivals = draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(0))
    assert arrivals.spans[0].rate_rps == pytest.approx(rate, rel=0.2)
    assert cv_of_gaps(arrivals.arrival_s) == pytest.approx(cv, rel=0.1)
    assert arrivals.prompt_tokens is not None and arrivals.output_tokens is not None
    assert np.median(arrivals.prompt_tokens) == pytest.approx(median_prompt, rel=0.05)
    assert np.median(arrivals.output_tokens) == pytest.approx(median_output, rel=0.15)
    assert arrivals.left_out == 0


def test_real_adaserve_rates_are_those_of_their_names() -> None:
    path = needs("adaserve")
    for part, requests in (("fig8_9/rps3.8_ol256", 1400), ("fig14/fluc_6m_peak4.0", 1445)):
        assert len(adaserve(path, part)) == requests


def test_the_three_peaks_are_those_of_the_artifact() -> None:
    path = needs("adaserve")
    theirs = adaserve(path, "fig14/fluc_6m_peak4.0")
    config = workload("three-peaks", rate_rps=len(theirs) / 360.0)
    ours = [
        draw_arrivals(config, DEFAULT_CLASSES, 1.0, np.random.default_rng(seed))
        for seed in range(5)
    ]
    for c, name in enumerate(DEFAULT_CLASSES.names):
        assert theirs.slo_class is not None
        at = theirs.arrival_s[theirs.slo_class == theirs.class_names.index(name)]
        drawn = np.concatenate([a.arrival_s[a.slo_class == c] for a in ours])
        assert drawn.mean() == pytest.approx(at.mean(), abs=10.0), name
        assert drawn.std() == pytest.approx(at.std(), abs=5.0), name
        assert len(drawn) / len(ours) == pytest.approx(len(at), rel=0.1), name


def test_real_servegen() -> None:
    path = needs("servegen")
    config = workload(f"servegen:{path}#m-large", rate_rps=2.0, duration_s=1800.0)
    assert config.trace is not None
    clients = config.trace.load()
    generators = [np.random.default_rng(seed) for seed in range(3)]
    counts = [
        len(draw_arrivals(config, DEFAULT_CLASSES, 1.0, generator, clients).arrival_s)
        for generator in generators
    ]
    assert len(set(counts)) == 3
    assert all(500 < count < 12_000 for count in counts)
