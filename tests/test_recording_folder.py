"""A recording's folder: it gives back what was written, and says in one sentence what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import Limits
from engine.replay.packing import pack, rounded, unpack
from engine.replay.recipe import Task
from engine.replay.recorder import Recorder
from engine.replay.recording import Manifest, Recording, full_places, select_texts
from engine.replay.recording_folder import (
    load,
    mark_unfinished,
    read_manifest,
    shards,
    take_up,
    write_manifest,
    write_shard,
)
from engine.tiny import tiny_server

LIMITS = Limits(slots=4, max_depth=4, max_width=4, max_nodes=16)
TOKENS = 20
TASKS = [Task(i % 2, tuple(range(3 + i, 12 + 2 * i)), i % 3 == 0) for i in range(3)]
NODES = ("parent", "depth", "widths", "token", "probability", "log_ratio")


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder(tiny_server(seed=2, vocab=24, limits=LIMITS))


@pytest.fixture(scope="module")
def recording(recorder: Recorder) -> Recording:
    return recorder.record(TASKS, TOKENS)


def test_a_folder_gives_back_what_was_written(
    tmp_path: Path, recorder: Recorder, recording: Recording
) -> None:
    manifest = recorder.manifest(("a", "b"))
    take_up(tmp_path / "new", manifest, {"tokens": TOKENS})
    for i in range(3):
        write_shard(tmp_path / "new", select_texts(recording, np.array([i])), i)
    found, back = load(tmp_path / "new")
    assert found == manifest
    exact = recording._replace(probability=rounded(recording.probability))
    np.testing.assert_allclose(exact.probability, recording.probability, rtol=2**-11)
    for name in Recording._fields:
        np.testing.assert_array_equal(getattr(back, name), getattr(exact, name), name)
        assert getattr(back, name).dtype == getattr(recording, name).dtype


def test_the_same_texts_give_the_same_bytes(tmp_path: Path, recording: Recording) -> None:
    a, b = (write_shard(tmp_path, recording, 0).read_bytes() for _ in range(2))
    assert a == b


def damaged(folder: Path, manifest: Manifest) -> None:
    path = shards(folder)[0]
    path.write_bytes(path.read_bytes()[:-300])


def flipped(folder: Path, manifest: Manifest) -> None:
    path = shards(folder)[0]
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 255
    path.write_bytes(raw)


def unfinished(folder: Path, manifest: Manifest) -> None:
    mark_unfinished(folder)


def other_recipe(folder: Path, manifest: Manifest) -> None:
    take_up(folder, manifest, {"tokens": 7})


def other_pair(folder: Path, manifest: Manifest) -> None:
    take_up(folder, Manifest(**{**vars(manifest), "model": "other"}), {"tokens": 5})


def other_files(folder: Path, manifest: Manifest) -> None:
    (folder / "manifest.json").unlink()
    take_up(folder, manifest, {"tokens": 5})


def first_version(folder: Path, manifest: Manifest) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))


def short_of_a_divergence(folder: Path, manifest: Manifest) -> None:
    recording = load(folder)[1]
    write_shard(folder, recording._replace(divergence=recording.divergence[1:]), 0)


def numbers_that_are_none(folder: Path, manifest: Manifest) -> None:
    recording = load(folder)[1]
    write_shard(folder, recording._replace(divergence=recording.divergence * np.nan), 0)


def no_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (damaged, "shard-0000.npz is damaged"),
        (flipped, "shard-0000.npz is damaged"),
        (unfinished, "is not finished; repeat the `python record.py` that began it"),
        (other_recipe, "holds another recording \\(tokens 5, now 7\\)"),
        (other_pair, "holds another recording \\(model tiny, now other\\)"),
        (other_files, "there is something else already"),
        (first_version, "is of recording version 1, not 2; record anew with `python record.py`"),
        (short_of_a_divergence, "damaged: not every place has a divergence; delete it, then"),
        (numbers_that_are_none, "damaged: it has numbers that are none; delete it, then"),
        (no_manifest, "holds no recording"),
    ],
)
def test_a_folder_that_is_not_as_it_should_be_is_told(
    tmp_path: Path,
    recorder: Recorder,
    recording: Recording,
    spoil: Callable[[Path, Manifest], None],
    says: str,
) -> None:
    manifest = recorder.manifest(("a", "b"))
    take_up(tmp_path, manifest, {"tokens": 5})
    write_shard(tmp_path, recording, 0)
    load(tmp_path)
    with pytest.raises(UserError, match=says):
        spoil(tmp_path, manifest)
        load(tmp_path)


def in_three_shards(folder: Path, recorder: Recorder, recording: Recording) -> Manifest:
    """The three texts, each in a shard of its own; the recipe says that there are three."""
    manifest = recorder.manifest(("a",))
    take_up(folder, manifest, {"texts_per_class": 3})
    for i in range(3):
        write_shard(folder, select_texts(recording, np.array([i])), i)
    assert load(folder)[1].texts == 3
    return manifest


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (0, "lacks shard-0000.npz, though shard-0001.npz is there; repeat the"),
        (1, "lacks shard-0001.npz, though shard-0002.npz is there; repeat the"),
        (2, "holds 2 texts in 2 shards, but its recipe.json asks for 3; repeat the"),
    ],
)
def test_a_lost_shard_is_not_read_over(
    tmp_path: Path, recorder: Recorder, recording: Recording, lost: int, says: str
) -> None:
    in_three_shards(tmp_path, recorder, recording)
    shards(tmp_path)[lost].unlink()
    with pytest.raises(UserError, match=says):
        load(tmp_path)


def test_a_folder_without_a_recipe_has_no_known_end(
    tmp_path: Path, recorder: Recorder, recording: Recording
) -> None:
    in_three_shards(tmp_path, recorder, recording)
    shards(tmp_path)[2].unlink()
    (tmp_path / "recipe.json").unlink()
    assert load(tmp_path)[1].texts == 2
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(UserError, match=r"recipe\.json is damaged"):
        load(tmp_path)


def test_whatever_is_wrong_with_a_shard_is_one_sentence(
    tmp_path: Path, recorder: Recorder, recording: Recording
) -> None:
    """Cut anywhere, or with bytes changed anywhere: told or harmless, never a traceback."""
    write_manifest(tmp_path, recorder.manifest(("a",)))
    path = write_shard(tmp_path, select_texts(recording, np.array([0])), 0)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for size in [0, 1, 3, *rng.integers(4, len(whole), 20).tolist()]:
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"shard-0000\.npz is damaged"):
            load(tmp_path)
    told = 0
    for _ in range(150):
        raw = bytearray(whole)
        for at in rng.integers(0, len(raw), int(rng.integers(1, 4))):
            raw[at] = int(rng.integers(256))
        path.write_bytes(raw)
        try:
            load(tmp_path)
        except UserError as error:
            told += "shard-0000.npz is damaged" in str(error)
    assert told > 75


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("classes", None, r"classes is null, expected tuple\[str, ...\]"),
        ("classes", [], r"classes is \[\]"),
        ("max_depth", "8", 'max_depth is "8", expected int'),
        ("max_nodes", 0, "max_nodes is 0"),
        ("model", 7, "model is 7, expected str"),
    ],
)
def test_a_manifest_that_says_nonsense_is_one_sentence(
    tmp_path: Path, recorder: Recorder, name: str, value: object, says: str
) -> None:
    write_manifest(tmp_path, recorder.manifest(("a",)))
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=says):
        read_manifest(tmp_path)


def test_places_that_are_full_are_counted_in_what_is_stored(recording: Recording) -> None:
    assert full_places(recording) == 0
    sizes = np.array([255, 0, 254, 255, 1])
    first_node = np.concatenate(([0], sizes.cumsum()))
    assert full_places(recording._replace(first_node=first_node)) == 2


def test_rounding_keeps_the_order_and_places_without_nodes(recording: Recording) -> None:
    falling = -np.sort(-(np.random.default_rng(0).random(5000).astype(np.float32) ** 9))
    assert (np.diff(rounded(falling)) <= 0).all()
    edge = np.array([1.0, 0.5, 2.0**-61, 0.0], np.float32)
    assert rounded(edge).tolist() == [1.0, 0.5, 2.0**-60, 2.0**-60]
    # A drafter that has nothing to say at a place, the first one and the last one too.
    gaps = np.repeat(recording.first_node, 2)
    sparse = recording._replace(first_node=gaps, entropy=np.zeros(len(gaps) - 1, np.float16))
    back = unpack(pack(sparse))
    np.testing.assert_array_equal(back.probability, rounded(recording.probability))
    np.testing.assert_array_equal(back.depth, recording.depth)
    none = {name: getattr(recording, name)[:0] for name in NODES}
    silent = recording._replace(first_node=np.zeros_like(recording.first_node), **none)
    nothing = unpack(pack(silent))
    assert len(nothing.probability) == 0


def test_a_node_that_is_its_own_ancestor_is_refused(recording: Recording) -> None:
    parent = recording.parent.copy()
    parent[:] = 0
    with pytest.raises(ValueError, match="own ancestors"):
        unpack(pack(recording._replace(parent=parent)))
