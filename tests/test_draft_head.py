"""The head that serves is the head that was trained, and it drafts from committed text alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.backends.live import LiveBackend
from engine.backends.protocol import new_children
from engine.drafters.eagle3 import Eagle3Drafter
from engine.kernels.beam import new_beam
from engine.loop import Engine
from engine.protocol import Limits
from engine.request import Request
from engine.serving import LiveServer
from engine.state import new_slots, new_trees
from engine.tiny import tiny_decoder, tiny_server
from models.distill.batches import BatchMaker
from models.distill.head_module import HeadModule, TrainBatch
from models.distill.store import Sequence as Stored
from models.distill.training import export_head
from models.draft_head import DraftHead, DraftHeadConfig
from models.errors import UserError
from tests.random_plans import RandomPlans

VOCAB, WIDTH, STEPS = 40, 32, 5
DECODER = tiny_decoder(0, VOCAB, "float32")
CONFIG = DraftHeadConfig.for_target(DECODER.config, VOCAB)


def random_weights(seed: int = 0) -> dict[str, Tensor]:
    """A head of random weights in which attention and tokens matter as much as states."""
    generator = torch.Generator().manual_seed(seed)
    inner, kv = CONFIG.intermediate_size, CONFIG.num_key_value_heads * CONFIG.head_dim
    shapes = {
        "fc": (WIDTH, 3 * WIDTH),
        "midlayer.self_attn.q_proj": (WIDTH, 2 * WIDTH),
        "midlayer.self_attn.k_proj": (kv, 2 * WIDTH),
        "midlayer.self_attn.v_proj": (kv, 2 * WIDTH),
        "midlayer.self_attn.o_proj": (WIDTH, WIDTH),
        "midlayer.mlp.gate_proj": (inner, WIDTH),
        "midlayer.mlp.up_proj": (inner, WIDTH),
        "midlayer.mlp.down_proj": (WIDTH, inner),
        "lm_head": (VOCAB, WIDTH),
    }
    weights = {
        f"{name}.weight": 0.2 * torch.randn(*shape, generator=generator)
        for name, shape in shapes.items()
    }
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    for name in ("norm", *(f"midlayer.{norm}" for norm in norms)):
        weights[f"{name}.weight"] = 1 + 0.2 * torch.randn(WIDTH, generator=generator)
    return weights


WEIGHTS = random_weights()


class Listening(HeadModule):
    """Keeps what each step hands to the final norm (states) and gets from the output (logits)."""

    def losses(self, batch: TrainBatch) -> tuple[Tensor, Tensor, Tensor]:
        self.states: list[Tensor] = []
        self.logits: list[Tensor] = []
        return super().losses(batch)

    def norm(self, x: Tensor, name: str) -> Tensor:
        if name == "norm":
            self.states.append(x.detach())
        return super().norm(x, name)

    def linear(self, x: Tensor, name: str) -> Tensor:
        y = super().linear(x, name)
        if name == "lm_head":
            self.logits.append(y.detach())
        return y


def sequences() -> list[Stored]:
    """Two texts with random features, as generation stores them."""
    rng = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(1)
    made = []
    for n, answer_start in ((17, 6), (23, 3)):
        tokens = torch.from_numpy(rng.integers(0, VOCAB, n + 1).astype(np.int32))
        features = torch.randn(n, 3 * WIDTH, generator=generator).bfloat16()
        hidden = torch.randn(n, WIDTH, generator=generator).bfloat16()
        made.append(Stored(tokens, answer_start, features, hidden))
    return made


def train_batch() -> TrainBatch:
    """All answer positions of both texts, every step scored wherever it lies inside the text."""
    maker = BatchMaker(torch.arange(VOCAB), DECODER.head_weight(), STEPS)
    return maker.make(sequences(), 1.0, np.random.default_rng(0))


def trained_states(batch: TrainBatch) -> list[tuple[Tensor, Tensor]]:
    """State and logits [n, …] of each step's scored roots, from the trainable module."""
    module = Listening(CONFIG, WEIGHTS, DECODER.embedding)
    with torch.inference_mode():
        module.losses(batch)
    return list(zip(module.states, module.logits, strict=True))


@torch.inference_mode()
def served_states(text: Sequence[int], features: Tensor, root: int) -> list[Tensor]:
    """States of a chain along `text` that the serving drafter starts behind row `root`."""
    limits = Limits(slots=2, max_depth=STEPS, max_width=2, max_nodes=STEPS)
    kept = torch.zeros(2, 32, 3 * WIDTH)
    slot = 1
    kept[slot, : len(features)] = features
    weights = WEIGHTS | {"d2t": torch.zeros(VOCAB, dtype=torch.int64)}
    head = DraftHead(CONFIG, weights, DECODER.embedding, torch.float32)
    drafter = Eagle3Drafter(head, kept, limits, 32)
    slots, trees, beam = new_slots(1, limits, 32), new_trees(1, limits), new_beam(1, limits)
    children = new_children(1, limits)
    # The root of the tree is text[context]; row `root` pairs its token with the state before it.
    context = slots.context[0, slot] = root + 1
    slots.text[0, slot, : context + 1] = text[: context + 1]
    drafting = np.array([[False, True]])
    drafter.draft_first(drafting, slots, children)
    states = [drafter.states[slot, 0].clone()]
    for step in range(1, STEPS):
        node = step - 1  # one candidate a step, which is the text's own next token
        trees.token[0, slot, node] = text[context + step] if context + step < len(text) else 0
        beam.size[0, slot], beam.candidate[0, slot, 0] = 1, node
        beam.ancestors[0, slot, 0, node * limits.max_width] = True
        drafter.draft_next(step, slots, trees, beam, children)
        states.append(drafter.states[slot, 0].clone())
    return states


def largest_difference(batch: TrainBatch) -> list[float]:
    """Between training and serving, by step, over all roots."""
    trained = trained_states(batch)
    worst = [0.0] * STEPS
    first_root = 0
    for stored, roots in zip(sequences(), batch.roots, strict=True):
        text, features = stored.tokens.tolist(), stored.features.float()
        for i, root in enumerate(roots.tolist(), first_root):
            served = served_states(text, features, root)
            for step in range(STEPS):
                scored = batch.targets[step] >= 0
                if scored[i]:
                    state = trained[step][0][int(scored[:i].sum())]
                    worst[step] = max(worst[step], float((state - served[step]).abs().max()))
        first_root += len(roots)
    return worst


def test_training_and_serving_agree_step_by_step() -> None:
    batch = train_batch()
    assert [(t >= 0).any().item() for t in batch.targets] == [True] * STEPS
    assert max(largest_difference(batch)) < 2e-5  # float32, summed in another order


def test_a_shifted_position_would_be_noticed() -> None:
    batch = train_batch()
    worst = largest_difference(batch._replace(step_positions=batch.step_positions + 1))
    assert min(worst) > 1e-2


def test_a_shifted_token_would_be_noticed() -> None:
    batch = train_batch()
    worst = largest_difference(batch._replace(step_tokens=batch.step_tokens.roll(1, 0)))
    assert worst[0] < 1e-5  # the root's own row has its token from `next_tokens`
    assert min(worst[1:]) > 1e-2
    assert largest_difference(batch._replace(next_tokens=batch.next_tokens.roll(1)))[0] > 1e-2


# -- export --------------------------------------------------------------------------------------


def test_an_exported_head_is_read_back(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    module = Listening(CONFIG, WEIGHTS, DECODER.embedding)
    vocab = torch.arange(VOCAB)
    export_head(tmp_path, module, vocab, {"steps": 3})
    head = DraftHead.from_folder(tmp_path, DECODER.embedding, torch.float32)
    rounded = {name: weight.bfloat16() for name, weight in WEIGHTS.items()}
    again = DraftHead(
        CONFIG, rounded | {"d2t": torch.zeros_like(vocab)}, DECODER.embedding, torch.float32
    )
    states = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(2))
    assert torch.equal(head.logits(states), again.logits(states))
    features = torch.randn(6, 3 * WIDTH, generator=torch.Generator().manual_seed(3))
    assert torch.equal(head.combine(features), again.combine(features))
    assert head.config == CONFIG
    # Names and types of the public EAGLE-3 checkpoints.
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(tensors) == {*WEIGHTS, "d2t", "t2d"}
    assert all(tensors[name].dtype == torch.bfloat16 for name in WEIGHTS)
    assert tensors["d2t"].dtype == torch.int64
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == VOCAB
    assert not list(tmp_path.glob("*.partial"))


def test_draft_ids_become_target_ids(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    vocab = torch.tensor([1, 2, 5, 11, 39])
    config = DraftHeadConfig.for_target(DECODER.config, len(vocab))
    weights = WEIGHTS | {"lm_head.weight": WEIGHTS["lm_head.weight"][vocab]}
    export_head(tmp_path, HeadModule(config, weights, DECODER.embedding), vocab, {})
    head = DraftHead.from_folder(tmp_path, DECODER.embedding, torch.float32)
    assert head.target_ids.tolist() == vocab.tolist()
    inside = load_file(tmp_path / "model.safetensors")["t2d"]
    assert inside.dtype == torch.bool and inside.nonzero().flatten().tolist() == vocab.tolist()


def test_a_head_of_another_target_is_refused(tmp_path: Path) -> None:
    export_head(tmp_path, HeadModule(CONFIG, WEIGHTS, DECODER.embedding), torch.arange(VOCAB), {})
    with pytest.raises(UserError, match="for a target of 40 tokens and width 32, got"):
        DraftHead.from_folder(tmp_path, torch.zeros(VOCAB + 1, WIDTH), torch.float32)
    raw = json.loads((tmp_path / "config.json").read_text())
    del raw["draft_vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(UserError, match="lacks draft_vocab_size"):
        DraftHead.from_folder(tmp_path, DECODER.embedding, torch.float32)


# -- state between iterations --------------------------------------------------------------------


LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)


def served_for_a_while(seed: int) -> tuple[LiveServer, Engine]:
    """A server in mid-episode after random plans, stretches without drafts among them."""
    server = tiny_server(seed, 10, limits=LIMITS, capacity_tokens=96)
    rng = np.random.default_rng(seed)
    requests = [
        Request(i, 0, rng.integers(0, 10, int(rng.integers(1, 30))).tolist(), 40, 0.0)
        for i in range(4)
    ]
    engine = server.engine(requests)
    controller = RandomPlans(rng)
    for _ in range(int(rng.integers(8, 20))):
        view = engine.next_decision()
        assert view is not None
        engine.run_iteration(view, controller)
    return server, engine


def test_drafts_depend_on_committed_text_alone() -> None:
    accepted = 0
    for seed in range(4):
        server, engine = served_for_a_while(seed)
        accepted += engine.counters["emitted"] - engine.counters["request_iterations"]
        used, slots = server.backend, engine.slots
        running = slots.decoding.copy()
        assert running.any()
        # Another backend reads the whole text at once, as if it were a prompt.
        fresh = LiveBackend(server.decoder, server.head, LIMITS, 96)
        slots.prefilled[:] = 0
        for slot in np.flatnonzero(running[0]).tolist():
            fresh.prefill(slot, slots, int(slots.context[0, slot]))
        own, other = server.drafter, fresh.drafter
        assert isinstance(own, Eagle3Drafter) and isinstance(other, Eagle3Drafter)
        children, catching_up = new_children(1, LIMITS), new_children(1, LIMITS)
        fresh.draft_first(running, slots, children)
        used.draft_first(running, slots, catching_up)
        for slot in np.flatnonzero(running[0]).tolist():
            n = int(slots.context[0, slot])
            pairs = [(own.features[slot, :n], other.features[slot, :n])]
            for a, b in ((used.cache, fresh.cache), (own.cache, other.cache)):
                pairs.append((a.keys[:, slot, :, :n], b.keys[:, slot, :, :n]))
                pairs.append((a.values[:, slot, :, :n], b.values[:, slot, :, :n]))
            for got, wanted in pairs:
                assert wanted.abs().max() > 0.1
                assert (got - wanted).abs().max() < 1e-12
            np.testing.assert_array_equal(catching_up.token[0, slot, 0], children.token[0, slot, 0])
    assert accepted > 10, "without accepted drafts there is nothing to keep apart"
