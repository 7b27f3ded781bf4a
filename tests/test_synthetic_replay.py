"""A synthetic recording is replayed as a real one: chains emit what the recording says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.protocol import Controller, Outcome, Plan, View
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording_folder import load
from engine.replay.server import ReplayConfig, ReplayServer
from engine.replay.synthetic.calibration import serving_tokens
from engine.replay.synthetic.command import main
from engine.replay.synthetic.generator import SyntheticConfig, draw_recording
from engine.replay.synthetic.model import Tier
from engine.replay.synthetic.pairs import find_pair
from tests.tiny_recording import known_profile

TOKENS, TEXTS = 300, 48


class Chain(Controller):
    """Chains of k drafts; counts iterations and what they emit."""

    def __init__(self, depth: int) -> None:
        self.depth, self.iterations, self.emitted = depth, 0, 0

    def plan(self, view: View) -> Plan:
        count = view.limits.slots
        return Plan(
            depth=np.full(count, self.depth),
            width=np.ones(count, np.int64),
            nodes=np.full(count, self.depth),
            margin=np.ones(count),
            node_budget=count * self.depth,
        )

    def observe(self, outcome: Outcome) -> None:
        self.iterations += int(outcome.ran.sum())
        self.emitted += int(outcome.accepted_length[outcome.ran].sum())


@pytest.fixture(scope="module")
def server() -> ReplayServer:
    config = SyntheticConfig(
        texts_per_class=TEXTS // 3, tokens=TOKENS, prompt_tokens=8, max_width=2, max_nodes=8
    )
    pair = find_pair("adaserve-llama-70b")
    manifest, recording = draw_recording(pair, config, np.random.default_rng(0))
    sizes = ReplayConfig(slots=16, capacity_tokens=TOKENS + 20)
    return ReplayServer(manifest, recording, known_profile(manifest), sizes)


@pytest.mark.parametrize(("depth", "accepted"), [(4, 3.4), (6, 5.0), (8, 6.6)])
def test_chains_accept_what_adaserve_published(
    server: ReplayServer, depth: int, accepted: float
) -> None:
    r = server.recording
    requests = [
        RecordedRequest(i, i % 3, r.tokens[start : start + 8].tolist(), TOKENS, 0.0, text=i)
        for i, start in enumerate(r.first_token[:-1].tolist())
    ]
    chain = Chain(depth)
    server.engine(list(requests)).serve(chain)
    for request in requests:
        end = int(r.first_token[request.text + 1])
        assert request.output == r.tokens[end - TOKENS : end].tolist()
    mean = chain.emitted / chain.iterations
    assert mean == pytest.approx(serving_tokens(r, Tier(depth, 1, depth)))
    # 14,000 tokens: some 2,000 iterations, whose mean is known to 0.15 at two standard errors.
    assert mean - 1 == pytest.approx(accepted, abs=0.2)


def test_the_command_writes_a_recording_that_replay_loads(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    asked = ["--write", str(folder), "--texts-per-class", "1", "--tokens", "12"]
    assert main(asked) == 0 and main(asked) == 0
    manifest, recording = load(folder)
    assert manifest.classes == ("coding", "chat", "summarization") and recording.texts == 3
    server = ReplayServer(manifest, recording, known_profile(manifest), ReplayConfig(slots=4))
    assert server.name == "meta-llama/Llama-3.1-70B-Instruct"


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", str(tmp_path / "x"), "--pair", "gpt-2"]) == 2
    assert "no pair is called 'gpt-2'" in capsys.readouterr().err
    assert main([]) == 0
    assert "adaserve-llama-70b" in capsys.readouterr().out
