"""What a result was made with: interpreter, packages, source revision, hardware.

Every written result carries this, since a figure without its machine says little.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "gymnasium",
    "stable-baselines3",
    "transformers",
    "tokenizers",
    "safetensors",
    "tensorboard",
    "sb3-contrib",
    "optuna",
    "flashinfer-python",
    "nvidia-ml-py",
    "pyarrow",
)
ROOT = Path(__file__).resolve().parents[1]


def versions() -> dict[str, Any]:
    """Versions and hardware as plain data; `revision` is null outside a git checkout."""
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _installed(name) for name in PACKAGES},
        "revision": _revision(),
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory and accelerators."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "gpus": _gpus(),
    }


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _revision() -> str | None:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:  # no git on this machine
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    """Names of CUDA devices when torch is loaded already; it is not loaded to ask."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
