"""A training that is killed with kill -9 and resumed, against one that nobody disturbed.

Both are `train.py` in processes of their own, on the recording that ships with DraftGym. Decisions
end them, so how fast the machine is says nothing about where they end. To try algorithms:
`python -m benchmarks.killed_training SEED POLICY …`.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.command import ROOT
from train.run_folder import RunFolder

DECISIONS = 12_288
MINUTES = 1_000_000.0
"""Time ends no training here."""
SAVED_EVERY_S = 1.0
LOOKED_EVERY_S = 0.05
WEIGHTS = ("policy.pth", "policy.optimizer.pth")


def identical(seed: int, policy: str) -> bool:
    """Whether weights and optimizer end bit for bit alike; the moment of the kill is drawn by seed.

    Raises RuntimeError where a training fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = (RunFolder(Path(folder) / name) for name in ("whole", "killed"))
        command = (
            *("--policy", policy, "--seed", str(seed), "--decisions", str(DECISIONS)),
            *("--minutes", f"{MINUTES:g}", "--save-every-s", f"{SAVED_EVERY_S:g}"),
            *("--eval-seeds", "0"),
        )
        _finish(_start("--out", str(whole.path), *command))
        # Uniform over training, so before the first checkpoint as well.
        reached = int(np.random.default_rng(seed).uniform(0.0, 0.95) * DECISIONS)
        _kill_at(_start("--out", str(killed.path), *command), killed, reached)
        _finish(_start("--resume", str(killed.path)))
        return all(
            np.array_equal(ours, theirs)
            for ours, theirs in zip(weights(killed), weights(whole), strict=True)
        )


def weights(run: RunFolder) -> list[np.ndarray]:
    """Every tensor of the last checkpoint's policy and optimizer."""
    with zipfile.ZipFile(run.checkpoint) as archive:
        found = [torch.load(io.BytesIO(archive.read(name)), weights_only=True) for name in WEIGHTS]
    return [tensor.numpy() for of in found for tensor in _tensors(of)]


def _tensors(of: Any) -> list[torch.Tensor]:
    if isinstance(of, dict):
        return [tensor for value in of.values() for tensor in _tensors(value)]
    return [of] if isinstance(of, torch.Tensor) else []


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a training ended with {process.returncode}: {said}")


def _kill_at(process: subprocess.Popen[str], run: RunFolder, decisions: int) -> None:
    """Kill it as soon as it tells of so many decisions, wherever it is then."""
    while _decisions(run) < decisions and process.poll() is None:
        time.sleep(LOOKED_EVERY_S)
    if process.poll() is not None:
        raise RuntimeError(f"a training ended before it was killed: {process.communicate()[0]}")
    process.kill()
    process.communicate()


def _decisions(run: RunFolder) -> int:
    """How many it logged last; −1 before it has begun to train."""
    if not run.metrics.is_file():
        return -1
    lines = [line for line in run.metrics.read_text("utf-8").split("\n")[:-1] if line]
    return int(json.loads(lines[-1])["step"]) if lines else -1


if __name__ == "__main__":
    for name in sys.argv[2:]:
        alike = identical(int(sys.argv[1]), name)
        print(f"{name}: {'identical' if alike else 'different'}", flush=True)
