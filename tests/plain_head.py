"""An EAGLE-3 head written out row by row in plain torch, for tests to hold `DraftHead` against.

It follows research/engines.md section 2.1 and shares no code with `models`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PlainHead:
    """Weights under the flat format's names, in float64, and how the checkpoint uses them."""

    weights: dict[str, Tensor]
    embedding: Tensor
    heads: int
    kv_heads: int
    eps: float
    base: float = 10_000.0
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def draft(self, tokens: Sequence[int], features: Tensor, ahead: Sequence[int]) -> Tensor:
        """Draft logits [n + len(ahead), draft_vocab] of n true rows, then of rows on own states."""
        states = list(self._combine(features))
        keys: list[Tensor] = []
        values: list[Tensor] = []
        logits: list[Tensor] = []
        carried = states[0]
        for position, token in enumerate([*tokens, *ahead]):
            state = states[position] if position < len(states) else carried
            out = self._layer(state, token, position, keys, values)
            normed = self._norm(out, "norm")
            carried = normed if self.norm_output else out
            logits.append(self.weights["lm_head.weight"] @ normed)
        return torch.stack(logits)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt()
        return x * scale * self.weights[f"{name}.weight"]

    def _combine(self, features: Tensor) -> Tensor:
        if self.fc_norm:
            parts = features.chunk(3, dim=-1)
            features = torch.cat([self._norm(p, f"fc_norm.{i}") for i, p in enumerate(parts)], -1)
        if self.norm_before_fc:
            features = self._norm(features, "input_norm")
        return features @ self.weights["fc.weight"].T

    def _layer(
        self, state: Tensor, token: int, position: int, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        weights = {n.removeprefix("midlayer."): w for n, w in self.weights.items()}
        hidden = self._norm(state, "midlayer.hidden_norm")
        x = torch.cat((self._norm(self.embedding[token], "midlayer.input_layernorm"), hidden))
        query = self._rotate(weights["self_attn.q_proj.weight"] @ x, self.heads, position)
        keys.append(self._rotate(weights["self_attn.k_proj.weight"] @ x, self.kv_heads, position))
        values.append((weights["self_attn.v_proj.weight"] @ x).view(self.kv_heads, -1))
        mixed = []
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = torch.stack([k[shared] @ query[head] for k in keys]) * query.shape[1] ** -0.5
            mixed.append(sum(p * v[shared] for p, v in zip(scores.softmax(0), values, strict=True)))
        attended = weights["self_attn.o_proj.weight"] @ torch.cat(mixed)
        out = (hidden if self.norm_before_residual else state) + attended
        x = self._norm(out, "midlayer.post_attention_layernorm")
        gate, up = weights["mlp.gate_proj.weight"] @ x, weights["mlp.up_proj.weight"] @ x
        return out + weights["mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)

    def _rotate(self, x: Tensor, heads: int, position: int) -> Tensor:
        x = x.view(heads, -1)
        half = x.shape[1] // 2
        angles = position * self.base ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[:, :half], x[:, half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=1)
