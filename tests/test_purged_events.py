"""What was logged after the last checkpoint of a run that was killed is not drawn twice."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from train.callbacks import run_logger


def logged(folder: Path, begins: int, steps: range) -> None:
    """A run logs at each of `steps`, and is killed."""
    logger = run_logger(folder, folder / "metrics.jsonl", begins)
    for step in steps:
        logger.record("eval/score", float(begins))
        logger.record("slo/attainment/chat", float(begins))
        logger.dump(step)
    logger.close()


def drawn(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Step and value as TensorBoard draws them."""
    events = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_a_resumed_run_takes_the_place_of_what_was_lost(tmp_path: Path) -> None:
    logged(tmp_path, 0, range(10, 60, 10))
    logged(tmp_path, 30, range(40, 50, 10))
    for folder, tag in (
        (tmp_path, "eval/score"),
        (tmp_path / "lines" / "chat", "slo/attainment"),
    ):
        assert drawn(folder, tag) == [(10, 0.0), (20, 0.0), (30, 0.0), (40, 30.0)], folder
