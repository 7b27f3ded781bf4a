"""Exported controllers of long ago: they decide as they did, and changed copies are refused."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from engine.errors import UserError
from policies.exported import load_exported
from policies.learned import LearnedController
from policies.manifest import FORMAT_VERSION, _digest
from policies.registry import make
from tests.golden_controllers import DECIDED, FEWEST, FOLDER, KINDS, decisions, kept_observations

WEIGHTS, MANIFEST = "weights.safetensors", "manifest.json"


@pytest.mark.parametrize("kind", KINDS)
def test_it_decides_as_it_did(kind: str) -> None:
    expected = safetensors.numpy.load_file(DECIDED)[kind]
    got = decisions(kind, kept_observations(kind))
    np.testing.assert_array_equal(got, expected)
    assert len(np.unique(expected, axis=0)) > FEWEST, "always the same: nothing is compared"
    assert isinstance(make(str(FOLDER / kind)), LearnedController)


def test_every_kind_of_folder_is_there_and_small() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(KINDS)
    for kind in KINDS:
        assert {path.name for path in (FOLDER / kind).iterdir()} == {WEIGHTS, MANIFEST}
        assert (FOLDER / kind / WEIGHTS).stat().st_size < 8000


def test_another_observation_is_another_decision() -> None:
    """The control: recorded decisions are not what any observation would bring."""
    expected = safetensors.numpy.load_file(DECIDED)["tiers"]
    assert (decisions("tiers", kept_observations("tiers")[::-1]) != expected).any()


def changed_manifest(folder: Path, change: Callable[[dict], None]) -> None:
    """Signed anew, as a careful forger would."""
    path = folder / MANIFEST
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    del values["digest"]
    values["digest"] = _digest(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def another_version(folder: Path) -> None:
    changed_manifest(folder, lambda v: v.update(format_version=FORMAT_VERSION + 1))


def another_hash(folder: Path) -> None:
    changed_manifest(folder, lambda v: v["files"].update({WEIGHTS: "0" * 64}))


def another_shape(folder: Path) -> None:
    """Tensors of another width, hashed as they should be."""
    tensors = safetensors.numpy.load_file(folder / WEIGHTS)
    tensors["action.bias"] = np.zeros(len(tensors["action.bias"]) + 1, np.float32)
    content = safetensors.numpy.save(tensors)
    (folder / WEIGHTS).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    changed_manifest(folder, lambda v: v["files"].update({WEIGHTS: digest}))


class Bomb:
    """Does something when it is unpickled."""

    gone_off: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> tuple:
        return Bomb.gone_off.append, (1,)


def a_pickle_beside(folder: Path) -> None:
    (folder / "policy.pkl").write_bytes(pickle.dumps(Bomb()))


def a_module_beside(folder: Path) -> None:
    (folder / "controller.py").write_text("raise SystemExit", encoding="utf-8")


def a_pickle_for_weights(folder: Path) -> None:
    content = pickle.dumps(Bomb())
    (folder / WEIGHTS).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    changed_manifest(folder, lambda v: v["files"].update({WEIGHTS: digest}))


def nothing_learned(folder: Path) -> None:
    changed_manifest(folder, lambda v: v["training"].update(updates=0))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (another_version, f"format version {FORMAT_VERSION + 1}"),
        (another_hash, "does not match its SHA-256"),
        (another_shape, "tensor action.bias has shape"),
        (a_pickle_beside, "policy.pkl is not named in the manifest"),
        (a_module_beside, "controller.py is not named in the manifest"),
        (a_pickle_for_weights, "no readable controller"),
        (nothing_learned, "exported before its first update"),
    ],
)
@pytest.mark.parametrize("kind", ["tiers", "recurrent", "by-request"])
def test_a_changed_copy_is_refused(
    kind: str, spoil: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = tmp_path / kind
    shutil.copytree(FOLDER / kind, folder)
    assert load_exported(folder).name == kind  # the copy itself is fine
    spoil(folder)
    with pytest.raises(UserError) as caught:
        make(str(folder))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not Bomb.gone_off


def test_one_that_imitates_has_learned_something(tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    shutil.copytree(FOLDER / "tiers", folder)
    changed_manifest(folder, lambda v: v["training"].update(updates=0, imitated="chain(3)"))
    assert load_exported(folder).name == "tiers"
