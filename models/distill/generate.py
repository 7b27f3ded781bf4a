"""Make training data: the target writes prompts and answers in a batch that never drains.

Every step feeds one token of every slot; a finished slot starts a new conversation at once. The
features that the head will need are kept as they pass, so no second pass over the text is made.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from models.decoder import Decoder
from models.distill.conversations import Conversation, ConversationSource
from models.distill.store import Sequence
from models.kv_cache import TokenBatch

TOP_K = 50  # self-written prompts are sampled at temperature 1 among the 50 likeliest tokens


class Generator:
    """S conversations in lock-step on one decoder."""

    def __init__(self, decoder: Decoder, source: ConversationSource, slots: int, seed: int) -> None:
        self.decoder, self.source, self.slots = decoder, source, slots
        longest = max(entry["tokens"] for entry in source.classes.values())
        capacity = len(source.header) + longest + source.answer_tokens + 64
        self.cache = decoder.new_cache(slots, capacity)
        width = decoder.config.hidden_size
        self.features = torch.zeros(slots, capacity, 3 * width, dtype=torch.bfloat16)
        self.hidden = torch.zeros(slots, capacity, width, dtype=torch.bfloat16)
        self.random = torch.Generator().manual_seed(seed)
        self._share_header()
        self.conversations = [self._start(slot) for slot in range(slots)]

    def _share_header(self) -> None:
        """Run the chat template's common beginning once and give it to every slot."""
        header = torch.tensor(self.source.header)
        n = len(header)
        batch = TokenBatch.whole(header)
        hidden, features = self.decoder.forward(batch, self.cache, self._capture())
        assert features is not None
        self.cache.share(0, n)
        self.features[:, :n] = features.bfloat16()
        self.hidden[:, :n] = hidden.bfloat16()

    def _capture(self) -> tuple[int, int, int]:
        return self.decoder.config.feature_layers

    def _start(self, slot: int) -> Conversation:
        conversation = self.source.draw()
        conversation.tokens = list(self.source.header)
        if not conversation.forced:  # an empty starter: the header's last state decides
            logits = self.decoder.logits(
                self.hidden[slot, len(self.source.header) - 1][None].to(self.decoder.dtype)
            )
            self.source.accept(conversation, int(self._sample(logits)[0]))
        return conversation

    def _sample(self, logits: Tensor) -> Tensor:
        top, indices = logits.float().topk(TOP_K, dim=-1)
        choice = torch.multinomial(top.softmax(-1), 1, generator=self.random)
        return indices.gather(-1, choice).squeeze(-1)

    def step(self) -> Iterator[Sequence]:
        """Feed one token a slot; yields the conversations that this completed."""
        positions = torch.tensor([len(c.tokens) for c in self.conversations])
        for conversation in self.conversations:
            conversation.tokens.append(conversation.forced.popleft())
        tokens = torch.tensor([c.tokens[-1] for c in self.conversations])
        slots = torch.arange(self.slots)
        no_mask = torch.empty(0, dtype=torch.bool)
        batch = TokenBatch(
            tokens, positions, slots, positions, torch.zeros_like(slots), no_mask, 0, self.slots
        )
        hidden, features = self.decoder.forward(batch, self.cache, self._capture())
        assert features is not None
        self.features[slots, positions] = features.bfloat16()
        self.hidden[slots, positions] = hidden.bfloat16()

        writing = [slot for slot, c in enumerate(self.conversations) if not c.forced]
        logits = self.decoder.logits(hidden[writing])
        greedy = logits.argmax(-1).tolist()
        as_user = [i for i, s in enumerate(writing) if self.conversations[s].writes_prompt()]
        if as_user:
            sampled = self._sample(logits[as_user]).tolist()
            for i, token in zip(as_user, sampled, strict=True):
                greedy[i] = token
        for slot, token in zip(writing, greedy, strict=True):
            conversation = self.conversations[slot]
            if self.source.accept(conversation, token):
                yield self._finish(slot, conversation)
                self.conversations[slot] = self._start(slot)

    def _finish(self, slot: int, conversation: Conversation) -> Sequence:
        fed = len(conversation.tokens) - 1
        return Sequence(
            torch.tensor(conversation.tokens, dtype=torch.int32),
            conversation.answer_start,
            self.features[slot, :fed].clone(),
            self.hidden[slot, :fed].clone(),
        )
