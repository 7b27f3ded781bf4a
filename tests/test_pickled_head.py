"""Heads that were published as a pickled file: tensors are read out of it, code never runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from models.errors import UserError
from tests.test_head_checkpoint import FLAT, SAME, difference, flat_tensors, load, write


def pickled(folder: Path, what: object) -> Path:
    """A checkpoint folder whose weights are a pickled file alone."""
    (folder / "config.json").write_text(json.dumps(FLAT))
    torch.save(what, folder / "pytorch_model.bin")
    return folder


def test_tensors_alone_are_read_from_a_pickled_file(tmp_path: Path) -> None:
    assert difference(load(pickled(tmp_path, flat_tensors())), flat_tensors()) < SAME


class Harmful:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def test_a_pickled_file_that_could_run_code_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    pickled(tmp_path, flat_tensors() | {"extra": Harmful(f"touch {trace}")})
    with pytest.raises(UserError, match="refused"):
        load(tmp_path)
    assert not trace.exists()
    torch.load(tmp_path / "pytorch_model.bin", weights_only=False)
    assert trace.exists(), "the file was harmless, so its refusal shows nothing"


def test_other_pickled_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no plain table of tensors"):
        load(pickled(tmp_path, {"state_dict": flat_tensors()}))
    file = tmp_path / "pytorch_model.bin"
    for damaged in (file.read_bytes()[:200], b"<!doctype html>", b""):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"pytorch_model\.bin (is damaged|cannot be read)"):
            load(tmp_path)


def test_safetensors_are_preferred(tmp_path: Path) -> None:
    pickled(tmp_path, {"harmful": Harmful("true")})
    load(write(tmp_path, FLAT, flat_tensors()))
