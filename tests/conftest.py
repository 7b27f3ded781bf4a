"""What every test may ask for: the real target, shared data, a clock by hand, a quiet machine.

Thread counts are set before any test imports NumPy, Numba or torch, because those read them once.
Fixtures of one topic live in that topic's test file, not here.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.scripted_drafter import HandClock

ROOT = Path(__file__).resolve().parents[1]
MODEL_NAME = "smollm2-135m-instruct"
# Measured to take more than a few seconds each, compiled kernels not counted.
LONGEST = {
    "test_commands", "test_decoder", "test_fine_tuning", "test_gpu_check", "test_live_workers",
    "test_lossless", "test_pass_graphs", "test_replay_serving", "test_sampled_text",
    "test_schedules", "test_train",
}  # fmt: skip

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: more threads each would only make them wait for one another.
    for variable in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    ):
        os.environ.setdefault(variable, "1")

# A first call compiles kernels, so a deadline per example would fail on the machine, not the code.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection() -> None:
    """Importing makes a million objects that stay: looking for garbage among them is a quarter."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest go first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


def pytest_collection_finish() -> None:
    """From here on only what the tests themselves make is looked at."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """Folder of the real target, in Hugging Face format; fetched at most once, else a skip."""
    from models import registry
    from models.errors import UserError

    try:
        return registry.resolve(MODEL_NAME)
    except UserError as error:
        pytest.skip(f"{MODEL_NAME} is not in the cache and cannot be fetched: {error}")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the shared data sets: $DRAFTGYM_SHARED, else ../shared/data; else a skip."""
    named = os.environ.get("DRAFTGYM_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; name its folder in DRAFTGYM_SHARED")
    return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """The engine's only clock; it moves when it is told to."""
    from tests.scripted_drafter import HandClock

    hand = HandClock(1000.0)  # where perf_counter starts means nothing
    monkeypatch.setattr("engine.loop.perf_counter", hand)
    return hand
