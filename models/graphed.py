"""Networks whose passes go through CUDA graphs, and which are used as if they did not.

A graphed network is the network: it shares weights and surface and differs in `forward`, which
replays a graph where there is one for the batch, and in the first cache that it makes. Graphs are
made for that one, which has a page more for padding; a pass over any other cache runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import overload

import numpy as np
from torch import Tensor

from models.decoder import Decoder
from models.draft_head import DraftHead
from models.errors import UserError
from models.flashinfer_attention import FlashInferAttention
from models.graph_tiers import GraphTiers, Tier
from models.kv_cache import KVCache, TokenBatch
from models.pass_graphs import CudaCapturer, GraphPool, Outputs, PassGraphs, Work

GRAPH_MEMORY_BYTES = 2 * 2**30  # of all networks of a server


class Graphs:
    """The graphs of one network, all over one cache."""

    def __init__(
        self, pool: GraphPool, tiers: GraphTiers, heads: int, states_width: int = 0
    ) -> None:
        """Passes take states [T, states_width] beside their tokens."""
        self.pool, self.tiers = pool, tiers
        self.heads, self.states_width = heads, states_width
        self.cache: KVCache | None = None
        self.passes: PassGraphs | None = None  # made at the first pass: tables come after the cache

    def new_cache(self, make: Callable[[int, int], KVCache], slots: int, capacity: int) -> KVCache:
        """What `make` gives; the first has a page more, not in its block tables, and the graphs."""
        if self.cache is not None:
            return make(slots, capacity)
        cache = self.cache = make(slots + 1, capacity)
        cache.use_tables(np.arange(cache.keys.shape[1] - 1)[:, None])
        return cache

    def give_up(self) -> None:
        """Give the graphs' memory back; they are made for the next cache that there is."""
        if self.passes is not None:
            self.passes.drop()
        self.cache = self.passes = None

    def run(
        self,
        network: Decoder | DraftHead,
        batch: TokenBatch,
        cache: KVCache,
        work: Work,
        variant: tuple[int, ...] = (),
        states: Tensor | None = None,
    ) -> Outputs | None:
        """As `PassGraphs.run`; None also for a cache that they are not made for."""
        if cache is not self.cache:
            self.pool.eager_passes["another cache"] += 1
            return None
        return self._over(cache, network).run(batch, work, variant, states)

    def prepare(
        self,
        network: Decoder | DraftHead,
        tier: Tier,
        masked: bool,
        work: Callable[[KVCache], Work],
        variant: tuple[int, ...] = (),
    ) -> bool:
        """As `PassGraphs.prepare`, of a pass over their cache; ValueError before there is one."""
        if self.cache is None:
            raise ValueError("graphs are captured over a cache, and none has been made")
        passes = self._over(self.cache, network)
        return passes.prepare(tier, masked, work(self.cache), variant)

    def _over(self, cache: KVCache, network: Decoder | DraftHead) -> PassGraphs:
        if self.passes is None:
            attention = network.attention
            if not isinstance(attention, FlashInferAttention):
                raise UserError(
                    "CUDA graphs are captured around FlashInfer's attention, this network has "
                    f"{type(attention).__name__}; choose attention flashinfer, or no graphs"
                )
            self.passes = PassGraphs(
                self.pool, self.tiers, attention, cache, self.heads, self.states_width
            )
        return self.passes


class GraphedDecoder(Decoder):
    """A decoder whose passes are replayed; outputs are good until the pool's next pass."""

    def __init__(self, decoder: Decoder, pool: GraphPool, tiers: GraphTiers) -> None:
        """Shares everything with `decoder`, except what is set later: its attention, for one."""
        vars(self).update(vars(decoder))
        self.graphs = Graphs(pool, tiers, self.config.heads)

    @property
    def token_tiers(self) -> tuple[int, ...]:
        """Tokens that a pass may have without padding, ascending."""
        return self.graphs.tiers.tokens

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """As the decoder's; the first has a page more, and the graphs."""
        return self.graphs.new_cache(super().new_cache, slots, capacity)

    def forward(
        self, batch: TokenBatch, cache: KVCache, capture: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """As the decoder's."""
        work = self._work(cache, capture)
        outputs = self.graphs.run(self, batch, cache, work, tuple(capture))
        if outputs is None:
            return super().forward(batch, cache, capture)
        hidden, features = outputs
        assert hidden is not None
        return hidden, features

    def prepare(self, tier: Tier, masked: bool, capture: Sequence[int] = ()) -> bool:
        """Have the tier's graph before a pass needs it; False where the pool is full."""
        layers = tuple(capture)
        work = partial(self._work, capture=layers)
        return self.graphs.prepare(self, tier, masked, work, layers)

    def _work(self, cache: KVCache, capture: Sequence[int]) -> Work:
        return lambda static, plan, _: self.run(static, plan, cache, capture)


class GraphedHead(DraftHead):
    """A draft head whose passes are replayed; outputs are good until the pool's next pass."""

    def __init__(self, head: DraftHead, pool: GraphPool, tiers: GraphTiers) -> None:
        """Shares everything with `head`, except what is set later: its attention, for one."""
        vars(self).update(vars(head))
        config = self.config
        self.graphs = Graphs(pool, tiers, config.num_attention_heads, config.hidden_size)

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """As the head's; the first has a page more, and the graphs."""
        return self.graphs.new_cache(super().new_cache, slots, capacity)

    def forward(self, batch: TokenBatch, states: Tensor, cache: KVCache) -> Tensor:
        """As the head's."""
        outputs = self.graphs.run(self, batch, cache, self._work(cache), states=states)
        if outputs is None:
            return super().forward(batch, states, cache)
        assert outputs[0] is not None
        return outputs[0]

    def prepare(self, tier: Tier, masked: bool) -> bool:
        """Have the tier's graph before a pass needs it; False where the pool is full."""
        return self.graphs.prepare(self, tier, masked, self._work)

    def _work(self, cache: KVCache) -> Work:
        return lambda static, plan, there: (self.run(static, plan, there, cache),)


@overload
def with_graphs(
    network: Decoder, pool: GraphPool, tiers: GraphTiers | None = None
) -> GraphedDecoder: ...
@overload
def with_graphs(
    network: DraftHead, pool: GraphPool, tiers: GraphTiers | None = None
) -> GraphedHead: ...
def with_graphs(
    network: Decoder | DraftHead, pool: GraphPool, tiers: GraphTiers | None = None
) -> GraphedDecoder | GraphedHead:
    """The network with its passes captured in `pool`, at the default tiers if None."""
    tiers = tiers or GraphTiers()
    if isinstance(network, DraftHead):
        return GraphedHead(network, pool, tiers)
    return GraphedDecoder(network, pool, tiers)


def card_graphs(network: Decoder) -> GraphPool | None:
    """A pool on the network's card, None where there is none or FlashInfer does not serve it."""
    if network.device.type != "cuda" or not isinstance(network.attention, FlashInferAttention):
        return None
    return GraphPool(CudaCapturer(network.device), GRAPH_MEMORY_BYTES)
