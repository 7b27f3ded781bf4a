"""Profiles come back whole, and only for the set-up that they were measured on."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.profile import HardwareProfile
from engine.profile.command import parser
from engine.profile.identity import network_label
from engine.profile.lookup import look_up
from engine.profile.machine import Machine, this_machine
from engine.profile.store import profile_path, profile_paths
from engine.tiny import tiny_decoder, tiny_head
from tests import profile_steps
from tests.profile_steps import IDENTITY

ELSEWHERE = Machine("another processor", 64, 512, "Linux aarch64")
# One change of each part of a set-up, and how the difference is told.
CHANGES = {
    "machine": ELSEWHERE,
    "threads": 1,
    "dtype": "bfloat16",
    "drafter": "model",
    "network": "64 wide (89abcdef)",
}


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    """The imaginary machine's, of few points."""
    return profile_steps.profile_of(profile_steps.timed(profile_steps.episodes(quick=True)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def of(profile: HardwareProfile, **changes: object) -> HardwareProfile:
    """The profile as if it were another set-up's."""
    identity = dataclasses.replace(profile.identity, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(profile, identity=identity)


# -- files ---------------------------------------------------------------------------------------


def test_a_profile_comes_back_whole(profile: HardwareProfile, tmp_path: Path) -> None:
    path = profile.save(tmp_path / "deep" / "profile.json")
    assert HardwareProfile.load(path) == profile
    assert HardwareProfile.load(path, profile.identity) == profile
    assert [p.name for p in path.parent.iterdir()] == ["profile.json"]  # no temporary file


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 1}, "version 1, expected 4"),
        ({"version": None}, "version None, expected 4"),
        ({"format": "x"}, "is not a hardware profile"),
        ({"measured_at": 3}, "profile.measured_at is 3, expected str"),
        ({"most_tokens": True}, "profile.most_tokens is True"),
        ({"extra": 1}, "expected \\["),
        ({"power": {"tokens": [1]}}, "profile.power has"),
        ({"context_tokens": 1e999}, "profile.context_tokens is inf"),
    ],
)
def test_a_file_that_does_not_fit_is_told(
    change: dict, says: str, profile: HardwareProfile, tmp_path: Path
) -> None:
    path = profile.save(tmp_path / "p.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=says) as told:
        HardwareProfile.load(path)
    assert "python -m engine.profile" in str(told.value)


def test_a_negative_cost_in_a_file_is_told(profile: HardwareProfile, tmp_path: Path) -> None:
    path = profile.save(tmp_path / "p.json")
    raw = json.loads(path.read_text())
    raw["verify"]["curve"]["base_s"] = -1.0
    path.write_text(json.dumps(raw))
    with pytest.raises(UserError, match="is damaged: a curve's base"):
        HardwareProfile.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_what_is_no_profile_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError, match="is not a hardware profile"):
        HardwareProfile.load(tmp_path / "p.json")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.json: no hardware profile"):
        HardwareProfile.load(tmp_path / "none.json")


# -- whose a profile is --------------------------------------------------------------------------


@pytest.mark.parametrize("part", CHANGES)
def test_profiles_of_two_set_ups_lie_side_by_side(
    part: str, profile: HardwareProfile, cache: Path
) -> None:
    other = of(profile, **{part: CHANGES[part]})
    paths = {profile.save(), other.save()}
    assert len(paths) == 2 and paths == set(profile_paths())
    assert all(path.is_relative_to(cache) for path in paths)
    assert look_up(profile.identity) == (profile, "")
    assert look_up(other.identity) == (other, "")


@pytest.mark.parametrize("part", CHANGES)
def test_another_set_ups_profile_is_refused_by_its_difference(
    part: str, profile: HardwareProfile, cache: Path, tmp_path: Path
) -> None:
    other = of(profile, **{part: CHANGES[part]})
    path = other.save(tmp_path / "p.json")
    assert HardwareProfile.load(path) == other  # who asks for no set-up gets what there is
    told = f"{part} {CHANGES[part]}, here {getattr(IDENTITY, part)}"
    with pytest.raises(UserError) as refused:
        HardwareProfile.load(path, IDENTITY)
    assert str(refused.value) == (
        f"{path} is the hardware profile of another set-up ({told}); measure one for this with "
        f"`{IDENTITY.command}`"
    )
    other.save()
    found = look_up(IDENTITY)
    assert found.profile is None
    assert found.missing == (
        f"the nearest is of another set-up ({told}); measure one with `{IDENTITY.command}`"
    )


def test_the_nearest_set_up_of_the_same_model_is_named(
    profile: HardwareProfile, cache: Path
) -> None:
    assert look_up(IDENTITY).missing == f"there is none; measure one with `{IDENTITY.command}`"
    of(profile, model="another").save()
    assert look_up(IDENTITY).missing.startswith("there is none")
    of(profile, threads=1, dtype="bfloat16").save()
    of(profile, threads=1).save()
    assert "(threads 1, here 2)" in look_up(IDENTITY).missing


def test_a_damaged_profile_counts_as_none(profile: HardwareProfile, cache: Path) -> None:
    profile.save().write_text("{")
    of(profile, threads=1).save().write_text("[]")
    found = look_up(IDENTITY)
    assert found.profile is None and "is not a hardware profile" in found.missing
    profile_path(IDENTITY).unlink()
    assert look_up(IDENTITY).missing.startswith("there is none")


def test_where_the_network_came_from_does_not_matter(profile: HardwareProfile, cache: Path) -> None:
    profile.save()
    moved = dataclasses.replace(IDENTITY, source="heads/mine")
    assert look_up(moved).profile == profile


def test_the_command_measures_the_set_up() -> None:
    mine = dataclasses.replace(IDENTITY, model="my models/x", source="heads/mine")
    words = shlex.split(mine.command)
    assert words[:3] == ["python", "-m", "engine.profile"]
    options = parser().parse_args(words[3:])
    assert (options.model, options.dtype, options.threads) == ("my models/x", "float32", 2)
    assert (options.drafter, options.draft_head) == ("eagle3", Path("heads/mine"))
    other = dataclasses.replace(IDENTITY, drafter="model", source="small")
    options = parser().parse_args(shlex.split(other.command)[3:])
    assert (options.drafter, options.draft_model) == ("model", "small")


def test_networks_are_told_by_their_shape() -> None:
    decoder = tiny_decoder(0, 16)
    labels = [network_label(tiny_head(decoder, seed).config) for seed in (0, 1)]
    assert labels[0] == labels[1]  # what was learned costs no time
    assert labels[0].startswith("32 wide (")
    assert network_label(decoder.config) != network_label(tiny_decoder(0, 16, layers=2).config)
    assert network_label(None) == "none"


def test_names_that_look_alike_have_profiles_of_their_own() -> None:
    paths = [profile_path(dataclasses.replace(IDENTITY, model=m)) for m in ("a/b", "a-b")]
    assert paths[0] != paths[1]


def test_the_machine_is_the_same_when_asked_twice(tmp_path: Path) -> None:
    assert this_machine() == this_machine()
    assert this_machine().fingerprint == this_machine().fingerprint != ELSEWHERE.fingerprint
    assert this_machine(tmp_path / "none").processor  # where /proc does not tell
