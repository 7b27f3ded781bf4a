"""The head as a trainable module: the same formulas as `models.draft_head`, unrolled in time.

Training-time test (EAGLE-3): from each chosen root the head takes `unroll` steps on its own
outputs, and every step is scored against what the target predicts there. Step k of root u sees
the true rows up to u and its own rows of steps 1 to k, just as when it drafts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.draft_head import DraftHeadConfig
from models.layers import rotary_tables, rotate


class TrainBatch(NamedTuple):
    """B sequences laid side by side; n_i rows and r_i roots each, sums N and R.

    Row i of a sequence pairs features[i] with tokens[i + 1] and predicts tokens[i + 2].
    """

    features: Tensor  # [N, 3h]
    next_tokens: Tensor  # [N] token at i + 1
    positions: Tensor  # [N] i
    row_counts: list[int]  # n_i
    roots: list[Tensor]  # per sequence [r_i], row index of each root
    step_tokens: Tensor  # [K, R] next token at row root + k
    step_positions: Tensor  # [K, R]
    targets: Tensor  # [K, R] row of target_probs for step k, -1 where nothing is learned
    target_probs: Tensor  # [M, draft_vocab]
    labels: Tensor  # [K, R] draft id of the token that the target emitted, -1 outside


class HeadModule(nn.Module):
    """Trainable EAGLE-3 head; parameter names are the checkpoint's."""

    def __init__(
        self, config: DraftHeadConfig, weights: dict[str, Tensor], embedding: Tensor
    ) -> None:
        super().__init__()
        self.config = config
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(w.float().clone()) for name, w in weights.items()}
        )
        self.embedding = embedding  # the target's, frozen: neither parameter nor buffer
        self.cos, self.sin = rotary_tables(
            config.head_dim, config.max_position_embeddings, config.rope_theta, torch.float32
        )

    def checkpoint(self) -> dict[str, Tensor]:
        """Weights under their public names."""
        return {name.replace("/", "."): p.detach() for name, p in self.weights.items()}

    def weight(self, name: str) -> Tensor:
        """One parameter by its public name without `.weight`."""
        return self.weights[f"{name}.weight".replace(".", "/")]

    def linear(self, x: Tensor, name: str) -> Tensor:
        """Product with one weight."""
        return F.linear(x, self.weight(name))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """RMS norm with one weight."""
        return F.rms_norm(x, (x.shape[-1],), self.weight(name), self.config.rms_norm_eps)

    def _inputs(self, tokens: Tensor, states: Tensor) -> Tensor:
        embedded = self.norm(self.embedding[tokens], "midlayer.input_layernorm")
        return torch.cat((embedded, self.norm(states, "midlayer.hidden_norm")), dim=-1)

    def _project(self, inputs: Tensor, positions: Tensor, name: str, heads: int) -> Tensor:
        x = self.linear(inputs, f"midlayer.self_attn.{name}_proj")
        x = x.view(len(inputs), heads, self.config.head_dim)
        if name == "v":
            return x
        return rotate(x, self.cos[positions], self.sin[positions])

    def losses(self, batch: TrainBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Per unrolled step [K]: summed soft cross-entropy, top-1 hits, positions counted."""
        c = self.config
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        fused = self.linear(batch.features, "fc")
        inputs = self._inputs(batch.next_tokens, fused)
        true_keys = self._project(inputs, batch.positions, "k", kv_heads)
        true_values = self._project(inputs, batch.positions, "v", kv_heads)
        starts = torch.tensor([0, *batch.row_counts]).cumsum(0).tolist()
        flat_roots = torch.cat([r + s for r, s in zip(batch.roots, starts, strict=False)])
        states = fused[flat_roots]
        inputs = inputs[flat_roots]
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        losses, hits, counts = [], [], []
        for step, positions in enumerate(batch.step_positions):
            if step > 0:
                inputs = self._inputs(batch.step_tokens[step], states)
                own_keys.append(self._project(inputs, positions, "k", kv_heads))
                own_values.append(self._project(inputs, positions, "v", kv_heads))
            query = self._project(inputs, positions, "q", heads)
            mixed = self._attend(query, true_keys, true_values, own_keys, own_values, batch, starts)
            states = states + self.linear(mixed, "midlayer.self_attn.o_proj")
            x = self.norm(states, "midlayer.post_attention_layernorm")
            gated = F.silu(self.linear(x, "midlayer.mlp.gate_proj"))
            up = self.linear(x, "midlayer.mlp.up_proj")
            states = states + self.linear(gated * up, "midlayer.mlp.down_proj")
            scored = batch.targets[step] >= 0
            logits = self.linear(self.norm(states[scored], "norm"), "lm_head")
            wanted = batch.target_probs[batch.targets[step][scored]]
            losses.append(-(wanted * logits.log_softmax(-1)).sum())
            hits.append((logits.argmax(-1) == batch.labels[step][scored]).sum())
            counts.append(scored.sum())
        return torch.stack(losses), torch.stack(hits), torch.stack(counts)

    def _attend(
        self,
        query: Tensor,
        true_keys: Tensor,
        true_values: Tensor,
        own_keys: list[Tensor],
        own_values: list[Tensor],
        batch: TrainBatch,
        starts: list[int],
    ) -> Tensor:
        """Attention of all roots at one step, sequence by sequence: no padding."""
        c = self.config
        groups = c.num_attention_heads // c.num_key_value_heads
        scale = c.head_dim**-0.5
        mixed = []
        first_root = 0
        for index, roots in enumerate(batch.roots):
            mine = slice(first_root, first_root + len(roots))
            first_root += len(roots)
            rows = slice(starts[index], starts[index + 1])
            # [kv, groups, r, d] against [kv, 1, n, d]
            q = query[mine].view(len(roots), -1, groups, c.head_dim).permute(1, 2, 0, 3) * scale
            k = true_keys[rows].permute(1, 2, 0).unsqueeze(1)
            v = true_values[rows].permute(1, 0, 2).unsqueeze(1)
            scores = [q @ k]
            future = torch.arange(k.shape[-1])[None] > roots[:, None]
            scores[0] = scores[0].masked_fill(future, -1e30)
            own = [x[mine].permute(1, 0, 2).unsqueeze(1) for x in own_keys]
            scores += [(q * x).sum(-1, keepdim=True) for x in own]
            weights = torch.cat(scores, dim=-1).softmax(-1)
            out = weights[..., : k.shape[-1]] @ v
            for step, x in enumerate(own_values):
                share = weights[..., k.shape[-1] + step].unsqueeze(-1)
                out = out + share * x[mine].permute(1, 0, 2).unsqueeze(1)
            mixed.append(out.permute(2, 0, 1, 3).reshape(len(roots), -1))
        return torch.cat(mixed)
