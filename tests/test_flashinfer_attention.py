"""Which attention a network gets, what FlashInfer is asked for, and when it is refused."""

from __future__ import annotations

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.protocol import Limits
from engine.request import Request
from engine.sampling.params import GREEDY
from engine.serving import LiveServer
from engine.tiny import LAYERS, tiny_decoder, tiny_head, tiny_server
from models.attention import PlainAttention
from models.attention_choice import choose_attention
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.flashinfer_attention import FlashInferAttention, import_flashinfer
from models.kv_cache import TokenBatch
from tests.flashinfer_calls import CLASS, Recorder, recorded_calls
from tests.interpreted_schedules import CountedAttention
from tests.ordinary_answers import ordinary_answers
from tests.random_plans import RandomPlans

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_is_the_plain_one_where_flashinfer_does_not_serve() -> None:
    for dtype, device in ((torch.bfloat16, CPU), (torch.float32, CUDA), (torch.float64, CPU)):
        assert isinstance(choose_attention("auto", dtype, device), PlainAttention)
    assert isinstance(choose_attention("plain", torch.bfloat16, CUDA), PlainAttention)
    assert isinstance(choose_attention("interpreter", torch.float64, CPU), FlashInferAttention)


@pytest.mark.parametrize(
    ("name", "dtype", "device", "message"),
    [
        ("fa3", torch.float32, CPU, "no attention is called 'fa3'; known are auto, plain"),
        ("flashinfer", torch.bfloat16, CPU, "is in bfloat16 on cpu"),
        ("flashinfer", torch.float32, CUDA, "is in float32 on cuda"),
        ("interpreter", torch.float32, CUDA, "the interpreter is for the CPU"),
    ],
)
def test_what_cannot_be_had_is_refused(
    name: str, dtype: torch.dtype, device: torch.device, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        choose_attention(name, dtype, device)


def test_a_missing_or_another_flashinfer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(UserError, match=r"needs the package flashinfer-python>=0\.6\.18,<0\.8"):
        import_flashinfer()
    for version in ("0.6.17", "0.8.0", "1.0.0", "0.0.0+unknown", "unknown"):
        monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(__version__=version))
        with pytest.raises(UserError, match=r"is installed; install draftgym\[gpu\]"):
            import_flashinfer()
    for version in ("0.6.18", "0.7.4", "0.7.10.post1"):
        monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(__version__=version))
        assert import_flashinfer() is sys.modules["flashinfer"]


def test_trees_go_to_fa2_with_a_mask_and_chains_choose_freely_without() -> None:
    calls = recorded_calls()
    made = [call.kwargs["backend"] for call in calls if call.name == CLASS]
    plans = [call for call in calls if call.name == f"{CLASS}.plan"]
    tree, tree_graph, chain, chain_graph = plans
    assert made == ["fa2", "auto", "fa2", "fa2"]
    assert tree.args[0].backend == "fa2" and tree.kwargs["custom_mask"].dtype == torch.bool
    assert chain.args[0].backend == "auto" and chain.kwargs["causal"]
    assert not {"custom_mask", "packed_custom_mask"} & set(chain.kwargs)
    # A mask that is packed on the card would make the host wait for its length.
    assert tree_graph.kwargs["packed_custom_mask"].dtype == torch.uint8
    assert chain_graph.kwargs["causal"] and all(
        call.args[0].use_cuda_graph for call in (tree_graph, chain_graph)
    )


@pytest.fixture(scope="module")
def server() -> LiveServer:
    """Tiny networks on the interpreter."""
    return tiny_server(attention="interpreter", limits=Limits(slots=2))


def test_a_server_on_the_interpreter_answers_as_ordinary_decoding(server: LiveServer) -> None:
    prompts = [(1, 2, 3), (9, 8), (4, 4, 4, 7, 20), (33,)]
    requests = [Request(i, 0, list(prompt), 9, 0.0) for i, prompt in enumerate(prompts)]
    server.engine(requests).serve(RandomPlans(np.random.default_rng(2)))
    answers = ordinary_answers(tiny_decoder(), [(prompt, GREEDY) for prompt in prompts], 9)
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output == answers[prompt, GREEDY]


def test_a_pass_is_planned_once_and_appends_in_every_layer(server: LiveServer) -> None:
    assert isinstance(server.decoder.attention, FlashInferAttention)
    assert isinstance(server.head, DraftHead)
    assert server.head.attention is not server.decoder.attention  # a wrapper holds one plan
    recorder = Recorder()
    decoder = tiny_decoder()
    decoder.attention = FlashInferAttention(recorder, CPU, workspace_bytes=16)
    recorder.calls.clear()
    with torch.inference_mode():
        decoder.forward(chain([5, 6, 7]), decoder.new_cache(1, 8))
    names = [call.name for call in recorder.calls]
    assert names == [f"{CLASS}.plan", *("append_paged_kv_cache", f"{CLASS}.run") * LAYERS]


def chain(tokens: list[int]) -> TokenBatch:
    """The beginning of a text."""
    rows, zeros = torch.arange(len(tokens)), torch.zeros(len(tokens), dtype=torch.int64)
    mask = torch.ones(1, len(tokens), len(tokens), dtype=torch.bool).tril()
    return TokenBatch(torch.tensor(tokens), rows, zeros, rows, rows, mask, 0, 1)


def test_the_compiled_layer_is_not_taken_past_another_attention() -> None:
    """In float32 a few rows go through one compiled call otherwise."""
    outputs, passes = [], Counter[str]()
    for attention in (PlainAttention(), CountedAttention(passes)):
        decoder = tiny_decoder(dtype="float32")
        head = tiny_head(decoder)
        decoder.attention = head.attention = attention
        with torch.inference_mode():
            batch = chain([5, 6, 7])
            hidden, features = decoder.forward(batch, decoder.new_cache(1, 8), (0, 3, 6))
            assert features is not None
            states = head.forward(batch, head.combine(features), head.new_cache(1, 8))
        outputs.append((hidden, states))
    assert passes == {"causal passes": 2}
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-4)


class Shapes:
    """Operators without numbers, which insist that what a kernel reads is on its device."""

    @staticmethod
    def append_paged_kv_cache(*args: Any, kv_layout: str) -> None:
        """Only looks where things are."""
        tensors = [*args[:4], *args[4], *args[5:]]
        assert kv_layout == "HND" and {tensor.device.type for tensor in tensors} == {"meta"}

    class BatchPrefillWithPagedKVCacheWrapper:
        """Only looks where things are."""

        def __init__(self, workspace: torch.Tensor, **kwargs: Any) -> None:
            assert workspace.device.type == "meta"

        def plan(self, *args: Any, **kwargs: Any) -> None:
            """Index arrays are planned with on the host, the mask is packed on the device."""
            assert {array.device.type for array in args[:4]} == {"cpu"}
            mask = kwargs.get("custom_mask")
            assert mask is None or mask.device.type == "meta"

        def run(self, q: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            """Of the right shape."""
            assert {tensor.device.type for tensor in (q, *cache)} == {"meta"}
            return torch.empty_like(q)


@pytest.mark.parametrize("tree", [False, True])
def test_a_pass_stays_on_the_networks_device(tree: bool) -> None:
    """Batches come from the host; a tensor without numbers betrays whoever brings it there."""
    meta, config = torch.device("meta"), tiny_decoder().config
    weights = {n: torch.empty(s, device=meta) for n, s in config.tensor_shapes().items()}
    decoder = Decoder(config, weights, torch.bfloat16)
    batch = chain([5, 6, 7])
    if tree:
        batch.mask[0, 2, 1] = False
    for attention in (PlainAttention(), FlashInferAttention(Shapes(), meta, workspace_bytes=16)):
        decoder.attention = attention
        with torch.inference_mode():
            hidden, features = decoder.forward(batch, decoder.new_cache(1, 8), (0, 3, 6))
            logits = decoder.logits(hidden)
        assert features is not None
        assert {hidden.device, features.device, logits.device} == {meta}
