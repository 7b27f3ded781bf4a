"""Published profiles say where they are from, keep their stairs, and predict measured runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile import HardwareProfile
from engine.profile.command import main
from engine.profile.cost_model import Curve, PassCost
from engine.profile.published import check, names, open_profile, tables
from engine.profile.published import command as published
from engine.profile.published.build import build_all
from engine.profile.published.curves import levelled, through
from engine.profile.published.listing import PARTS
from engine.profile.published.queueing import Server, simulate
from engine.profile.published.sheets import GRAPH_SIZES, shape
from engine.protocol import Limits
from engine.replay.clock import check_sizes

TOKENS = (128, 256, 384, 512, 640, 768, 896, 1024)
# ALGORITHMS.md §11: unloaded ms, ms of verifying so many tokens, ms of a draft step.
ADASERVE = {
    "adaserve-llama-70b-a100": (30, (55, 85, 105, 125, 145, 165, 185, 205), 5),
    "adaserve-qwen-32b-a100": (28, (48, 66, 84, 104, 124, 144, 164, 188), 4),
}


def steps(curve: Curve, at: tuple[int, ...]) -> list[float]:
    """Relative rise from each count to the next one."""
    return [curve.at(n + 1) / curve.at(n) - 1 for n in at]


# -- the figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ADASERVE)
def test_adaserves_figures_are_met_exactly(name: str) -> None:
    profile = open_profile(name)
    unloaded_ms, verify_ms, draft_ms = ADASERVE[name]
    assert (1e3 * profile.verify_s(TOKENS)).tolist() == pytest.approx(verify_ms, abs=1e-9)
    assert 1e3 * profile.step_s(0, 1, 0, 500) == pytest.approx(unloaded_ms, abs=1e-9)
    # Four draft steps of 16 requests and a beam of 3 cost four times one.
    assert 1e3 * profile.draft_s([16, 48, 48, 48], 8000, 16) == pytest.approx(4 * draft_ms)


@pytest.mark.parametrize("name", names())
def test_more_tokens_never_cost_less(name: str) -> None:
    profile = open_profile(name)
    counts = np.arange(1, profile.most_tokens + 1)
    for cost in (profile.verify, profile.draft_first, profile.draft_next, profile.prefill):
        assert (np.diff(cost(counts, 1000, 1)) >= -1e-12).all()


def test_tile_steps_stand() -> None:
    # Vidur's A100: layers of Llama-3-8B take 0.415 ms at 128 tokens and 0.5675 at 136 (a pass over
    # 129 is padded to 136), 0.613 at 256 and 0.833 at 264, 0.873 at 384 and 1.0395 at 392.
    curve = open_profile("llama-8b-a100").verify.curve
    assert min(steps(curve, (128, 256, 384))) > 0.15
    assert max(steps(curve, (129, 200, 260))) < 0.03
    smoothed = Curve(curve.at(1), (1.0, 512.0), ((curve.at(512) - curve.at(1)) / 511, 1e-5))
    assert max(steps(smoothed, (128, 256, 384))) < 0.01  # what smoothing away would look like


def test_captured_sizes_are_stairs_of_the_roofline() -> None:
    # Beyond the knee of an H200 (about 167 tokens) a pass costs what the next captured size does.
    curve = open_profile("llama-8b-h200").verify.curve
    assert curve.at(257) == pytest.approx(curve.at(272))
    assert curve.at(273) > 1.03 * curve.at(272)
    assert curve.at(600) < curve.at(601)  # nothing is captured there: a line
    assert set(curve.jumps_at) <= set(GRAPH_SIZES)


def test_the_roofline_is_that_of_the_data_sheet() -> None:
    # Read for a token: 32 layers of 4096 · (80 heads · 128 + 3 · 14336) = 218.1 M weights and a
    # head of 4096 · 128256: 7.505 G, two bytes each, at 0.8 · 4.8 TB/s: 3.909 ms; 32 attention
    # kernels of 5.2 µs: 0.166 ms.
    profile = open_profile("llama-8b-h200")
    assert 1e3 * profile.verify.curve.at(1) == pytest.approx(3.909 + 0.166, abs=1e-3)
    # At 1,024 tokens arithmetic: 2 · 7.505 G · 1024 at 0.65 · 989 TFLOPS: 23.91 ms.
    assert 1e3 * profile.verify.curve.at(1024) == pytest.approx(23.91 + 0.166, abs=0.01)


def test_memory_pressure_comes_at_the_devices_load() -> None:
    # 80 GiB · 0.9 = 77.31 GB, less 16.06 GB of weights and 0.85 GB of head, over 2 · 32 layers · 8
    # heads · 128 · 2 bytes = 131,072: 460,816 tokens.
    profile = open_profile("llama-8b-a100")
    assert profile.memory.kv_bytes_per_token == 131_072
    assert shape("llama-3.1-8b-instruct").weight_bytes == pytest.approx(16.06e9, rel=1e-3)
    assert profile.kv_pool_tokens() == 460_816
    with pytest.raises(UserError, match=r"fills 15\.7 of 80\.0 GiB, of which 10% may"):
        profile.kv_pool_tokens(0.1)


def test_every_part_says_where_it_is_from() -> None:
    profiles = {name: open_profile(name) for name in names()}
    kinds = {name: {part: p.origin(part).kind for part in PARTS} for name, p in profiles.items()}
    assert len(kinds) >= 8
    assert kinds["adaserve-llama-70b-a100"]["verify"] == "published"
    assert kinds["llama-70b-h100"]["verify"] == "published"
    assert kinds["llama-70b-h100"]["draft"] == "modelled"
    assert set(kinds["llama-8b-h200"].values()) == {"modelled"}
    for profile in profiles.values():
        assert set(profile.origins) == set(PARTS)
        assert all(len(origin.source) > 2 for origin in profile.origins.values())


def test_sizes_far_beyond_the_published_ones_are_refused() -> None:
    limits = Limits(slots=64, max_depth=8, max_width=8, max_nodes=63)  # 4,096 tokens in a step
    check_sizes(open_profile("llama-70b-a100"), limits)
    with pytest.raises(UserError, match="measured up to 1024 and is trusted to 3 times that"):
        check_sizes(open_profile("adaserve-llama-70b-a100"), limits)


# -- names and files -----------------------------------------------------------------------------


def test_a_name_or_a_path_opens(tmp_path: Path) -> None:
    profile = open_profile("llama-8b-a100")
    assert open_profile(profile.save(tmp_path / "mine.json")) == profile


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match="named 'lama-8b-a10'; did you mean llama-8b-a100\\?"):
        open_profile("lama-8b-a10")


def test_version_3_is_read_and_version_4_must_be_whole(tmp_path: Path) -> None:
    profile = open_profile("llama-8b-a100")
    path = profile.save(tmp_path / "p.json")
    raw = json.loads(path.read_text())
    del raw["origins"], raw["power"]["idle_watts"], raw["power"]["limit_watts"]
    del raw["memory"]["device_bytes"]
    path.write_text(json.dumps(raw | {"version": 3}))
    old = HardwareProfile.load(path)
    assert old.verify == profile.verify
    assert old.origin("verify").kind == "measured"
    with pytest.raises(UserError, match="does not say how much memory"):
        old.kv_pool_tokens()
    path.write_text(json.dumps(raw))
    with pytest.raises(UserError, match="is damaged"):
        HardwareProfile.load(path)
    path.write_text(json.dumps(raw | {"origins": {"verify": {"kind": "guessed", "source": ""}}}))
    with pytest.raises(UserError, match="is damaged"):
        HardwareProfile.load(path)


def test_commands_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in names())
    assert main(["--show", "llama-8b-a100"]) == 0
    shown = capsys.readouterr().out
    assert "stairs" in shown and "verify      published: Vidur" in shown
    assert main(["--show", "nothing"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert published.main(["--check", "--data", "/nowhere"]) == 2
    assert "no such table" in capsys.readouterr().err


# -- curves --------------------------------------------------------------------------------------


def test_what_falls_is_levelled() -> None:
    assert levelled(np.array([1.0, 3.0, 2.0, 4.0])).tolist() == [1.0, 2.5, 2.5, 4.0]
    assert levelled(np.array([3.0, 2.0, 1.0])).tolist() == [2.0, 2.0, 2.0]


def test_a_curve_goes_through_its_points() -> None:
    tokens = np.array([1.0, 8.0, 16.0, 600.0, 608.0, 616.0, 624.0, 632.0])
    seconds = np.array([1.0, 1.1, 1.2, 2.0, 2.01, 3.0, 3.01, 3.02])  # a step behind 608
    padded = through(tokens, seconds, padded_to=16)
    assert padded(tokens).tolist() == pytest.approx(seconds.tolist())
    assert padded.at(2) == padded.at(8) == pytest.approx(1.1)  # padded to 8
    assert padded.at(609) == pytest.approx(3.0)
    assert padded.at(308) == pytest.approx(1.6)  # beyond captured sizes on a line
    line = through(tokens, seconds)
    assert line(tokens).tolist() == pytest.approx(seconds.tolist())
    assert line.at(609) == pytest.approx(2.01 + 0.99 / 8)
    assert line.jumps_at == ()


def test_rebuilding_gives_what_ships(shared_data: Path) -> None:
    made = build_all(shared_data)
    assert sorted(made) == names()
    for name, profile in made.items():
        shipped = open_profile(name)
        counts = np.arange(1, profile.most_tokens + 1, 7)
        np.testing.assert_allclose(profile.verify_s(counts), shipped.verify_s(counts), rtol=1e-9)
        np.testing.assert_allclose(profile.power.watts, shipped.power.watts, atol=0.11)
        assert profile.origins == shipped.origins


def test_operator_times_are_met_at_their_points(shared_data: Path) -> None:
    """Vidur's layers, the head by roofline, and an attention floor; levelled where timings fall."""
    profile = open_profile("llama-8b-a100")
    model = shape("llama-3.1-8b-instruct")
    times = tables.vidur_layers(shared_data, "a100", "Meta-Llama-3-8B", 1, model).until(4096)
    rest = profile.verify.curve(times.tokens) - times.seconds
    off = np.abs(rest - np.maximum(0.644e-3, times.tokens * 5.181e-6) - 32 * 14e-6)
    assert (off / times.seconds < 0.06).all()  # timings of neighbours fall by as much
    assert np.median(off / times.seconds) < 0.01
    assert off[0] < 1e-6


# -- what others measured ------------------------------------------------------------------------


def test_a_measured_run_of_vllm_is_predicted(shared_data: Path) -> None:
    """The one of which nothing was fitted; the command compares all three."""
    lines = list(check.queue_runs(shared_data, check.RUNS[1:2]))
    assert len(lines) == 7
    for line in lines:
        bar = 0.05 if "TPOT" in line.what or "throughput" in line.what else 0.10
        assert abs(line.error) < bar, line


def test_power_holds_on_batches_held_out(shared_data: Path) -> None:
    held_out = [errors for errors in check.power(shared_data) if "held out" in errors.what]
    assert len(held_out) == 3
    assert all(np.abs(errors.errors).max() < 0.03 for errors in held_out)


@pytest.fixture
def hand() -> HardwareProfile:
    """A pass of any size takes 10 ms; nothing else costs."""
    flat = PassCost(Curve(10e-3))
    return dataclasses.replace(
        open_profile("llama-8b-a100"), verify=flat, prefill=flat, host=PassCost()
    )


def test_a_queue_by_hand(hand: HardwareProfile) -> None:
    # One at a time, both there at once, three tokens each: a pass for the prompt's token and two
    # more. The first queues 0 and has a token after 10 ms; the second starts after 30.
    server = Server(most_running=1, batch_tokens=100, kv_pool_tokens=640)
    both, four, three = np.zeros(2), np.array([4, 4]), np.array([3, 3])
    run = simulate(hand, both, four, three, server)
    assert run.queue_s.tolist() == pytest.approx([0.0, 30e-3])
    assert run.ttft_s.tolist() == pytest.approx([10e-3, 40e-3])
    assert run.tpot_s.tolist() == pytest.approx([10e-3, 10e-3])
    assert (run.finished_s, run.most_running) == (pytest.approx(60e-3), 1)
    together = simulate(hand, both, four, three, server._replace(most_running=2))
    assert together.finished_s == pytest.approx(30e-3)
    # Chunks of two tokens: the prompt takes two passes.
    chunked = simulate(hand, both[:1], four[:1], three[:1], server._replace(batch_tokens=2))
    assert chunked.ttft_s.tolist() == pytest.approx([20e-3])


def test_a_full_cache_makes_the_youngest_give_way(hand: HardwareProfile) -> None:
    # Three pages: both prompts of 16 tokens fit, a second page each does not.
    server = Server(most_running=2, batch_tokens=100, kv_pool_tokens=48)
    run = simulate(hand, np.zeros(2), np.array([16, 16]), np.array([8, 8]), server)
    assert run.preemptions == 1
    roomy = simulate(
        hand, np.zeros(2), np.array([16, 16]), np.array([8, 8]), server._replace(kv_pool_tokens=64)
    )
    assert roomy.preemptions == 0
    assert run.finished_s > roomy.finished_s
    with pytest.raises(ValueError, match="does not fit in a pool of 16"):
        simulate(
            hand, np.zeros(1), np.array([16]), np.array([8]), server._replace(kv_pool_tokens=16)
        )
