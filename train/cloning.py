"""Fit a policy over tiers to recorded decisions, and its critic to what the policy then earns.

The actor's logits by cross-entropy with every recorded tier, on mini-batches of stretches of
decisions, until the loss on stretches held out has not fallen for a while; the best weights are
kept. Labels are smoothed, since a policy that is sure of everything explores nothing afterwards.
For an actor that remembers, a stretch begins with an empty memory.

The critic by squared error with returns that were seen while the fitted policy acted: discounted by
elapsed time, and behind the last step the mean that such a policy earns. Left at random, its first
advantages would be noise, and training would undo what was cloned.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.protocol import Floats, Ints
from policies.actions import DIMENSIONS
from train.algorithms.tier_policy import ABSENT
from train.algorithms.timing import ELAPSED
from train.plateau import Plateau
from train.sb3_vec_env import MASKS

if TYPE_CHECKING:
    from train.algorithms.base import Learner
    from train.imitation import Recording

STRETCH = 32  # decisions that stand together
BATCH = 16  # stretches
HELD_OUT = 0.2  # of the stretches
LEARNING_RATE, SMOOTHING = 3e-3, 0.05
EPOCHS, PATIENCE = 200, 8
MOST_CRITIC_DECISIONS = 8192  # over all environments
CRITIC_EPOCHS = 20
REAL = ABSENT / 10  # below it stands what a dimension lacks, or what is not legal


@dataclass(frozen=True)
class Agreement:
    """How a policy fits the decisions held out."""

    by_class: dict[str, float]
    """Share of decisions with the same depth, width, nodes and margin; of classes seen alone."""
    before: float
    """The same over all classes, of the policy before it was fitted."""
    decisions: int
    loss: float
    """Cross-entropy in nats a choice."""
    epochs: int


def clone(
    model: Learner, recording: Recording, rng: np.random.Generator, epochs: int = EPOCHS
) -> Agreement:
    """Fit the model's actor; `epochs` 0 only measures. The same generator gives the same weights.

    Raises ValueError for a recording of fewer than two stretches.
    """
    stretches = _stretches(recording.begins)
    if len(stretches) < 2:
        raise ValueError(f"{len(stretches)} stretches of {STRETCH} decisions; expected at least 2")
    rng.shuffle(stretches)
    held_out = max(round(HELD_OUT * len(stretches)), 1)
    test, train = stretches[:held_out], stretches[held_out:]
    policy: Any = model.policy
    before = _agreement(model, recording, test)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    plateau, kept, done = Plateau(PATIENCE), copy.deepcopy(policy.state_dict()), 0
    plateau.improves(-_held_out_loss(model, recording, test), done)
    policy.set_training_mode(True)
    while done < epochs and not plateau.is_reached:
        done += 1
        order = rng.permutation(len(train))
        for at in range(0, len(train), BATCH):
            rows = train[order[at : at + BATCH]]
            optimizer.zero_grad()
            _loss(model, recording, rows, SMOOTHING).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if plateau.improves(-_held_out_loss(model, recording, test), done):
            kept = copy.deepcopy(policy.state_dict())
    policy.load_state_dict(kept)
    policy.set_training_mode(False)
    after = _agreement(model, recording, test)
    counts = recording.told[test].sum((0, 1))
    names = model.codec.table.class_names
    shares = {
        name: float(same / count)
        for name, same, count in zip(names, after, counts, strict=True)
        if count
    }
    share_before = float(before.sum() / max(counts.sum(), 1))
    return Agreement(shares, share_before, test.size, -plateau.best, done)


def _stretches(begins: NDArray[np.bool_]) -> Ints:
    """[n, STRETCH] numbers of decisions that follow each other within an episode."""
    edges = [*np.flatnonzero(begins).tolist(), len(begins)]
    found = [
        np.arange(at, at + STRETCH)
        for first, end in pairwise(edges)
        for at in range(first, end - STRETCH + 1, STRETCH)
    ]
    return np.array(found, np.int64).reshape(-1, STRETCH)


def log_probabilities(model: Learner, recording: Recording, rows: Ints) -> Tensor:
    """[n · STRETCH, D, K] of every tier, by the policy, for stretches `rows`."""
    policy: Any = model.policy
    observations = torch.as_tensor(recording.observation[rows.ravel()], device=model.device)
    if hasattr(policy, "lstm_actor"):
        lstm, n = policy.lstm_actor, len(rows)
        empty = torch.zeros(lstm.num_layers, n, lstm.hidden_size, device=model.device)
        starts = torch.zeros(rows.size, device=model.device)
        distribution, _ = policy.get_distribution(observations, (empty, empty.clone()), starts)
    elif hasattr(policy.action_dist, "apply_masking"):
        legal = recording.legal[rows.ravel()]
        distribution = policy.get_distribution(observations, action_masks=legal)
    else:
        distribution = policy.get_distribution(observations)
    found: Tensor = distribution.log_p
    return found


def _targets(model: Learner, recording: Recording, rows: Ints) -> tuple[Tensor, Tensor]:
    """Recorded tiers [n · STRETCH, D], and which of these choices count."""
    tiers = torch.as_tensor(recording.tiers[rows.ravel()], device=model.device)
    nvec = model.codec.table.nvec
    free = np.repeat(recording.told[rows.ravel()], len(DIMENSIONS), axis=1) & (nvec > 1)
    return tiers, torch.as_tensor(free, device=model.device)


def _loss(model: Learner, recording: Recording, rows: Ints, smoothing: float) -> Tensor:
    """Nats a choice that counts; of the smoothed part, over the tiers that are legal alone."""
    log_p = log_probabilities(model, recording, rows)
    tiers, counts = _targets(model, recording, rows)
    own = log_p.gather(-1, tiers.unsqueeze(-1)).squeeze(-1)
    real = log_p > REAL
    spread = torch.where(real, log_p, 0.0).sum(-1) / real.sum(-1)
    nats = -((1.0 - smoothing) * own + smoothing * spread)
    return torch.where(counts, nats, 0.0).sum() / counts.sum().clamp(min=1)


def _held_out_loss(model: Learner, recording: Recording, rows: Ints) -> float:
    with torch.no_grad():
        return float(_loss(model, recording, rows, SMOOTHING))


def _agreement(model: Learner, recording: Recording, rows: Ints) -> Floats:
    """[C] decisions held out that are the same in every dimension."""
    with torch.no_grad():
        likeliest = log_probabilities(model, recording, rows).argmax(-1).cpu().numpy()
    same = (likeliest == recording.tiers[rows.ravel()]).reshape(rows.size, -1, len(DIMENSIONS))
    found: Floats = (same.all(-1) & recording.told[rows.ravel()]).sum(0).astype(np.float64)
    return found


def fit_critic(model: Learner, rng: np.random.Generator, scale: float) -> float:
    """Fit the critic to returns of the policy as it is; returns its mean squared error at the end.

    Steps the model's environments for three half-lives of a reward or so; rewards count `scale`
    times, as in training.
    """
    env: Any = model.get_env()
    steps = max(MOST_CRITIC_DECISIONS // env.num_envs // STRETCH, 1) * STRETCH
    observations, rewards, elapsed_s, starts = _rollout(model, env, steps)
    targets = returns(scale * rewards, elapsed_s, float(model.gamma))  # type: ignore[attr-defined]
    policy: Any = model.policy
    critic = _critic_parameters(policy)
    optimizer = torch.optim.Adam(critic, lr=LEARNING_RATE)
    # Stretches [n, STRETCH] of one environment each.
    shape = steps // STRETCH, STRETCH, env.num_envs
    rows = np.arange(steps * env.num_envs).reshape(shape).swapaxes(1, 2).reshape(-1, STRETCH)
    flat = [part.reshape(-1, *part.shape[2:]) for part in (observations, targets, starts)]
    error = 0.0
    for _ in range(CRITIC_EPOCHS):
        order, error = rng.permutation(len(rows)), 0.0
        for at in range(0, len(rows), BATCH):
            chosen = rows[order[at : at + BATCH]]
            seen, wanted, begins = (torch.as_tensor(part[chosen.ravel()]) for part in flat)
            values = _values(policy, seen, begins, len(chosen))
            loss = torch.nn.functional.mse_loss(values.flatten(), wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            error += float(loss.detach()) * len(chosen) / len(rows)
    return error


def _rollout(model: Learner, env: Any, steps: int) -> tuple[NDArray[Any], ...]:
    """Observations, rewards, seconds and episode starts [steps, R, …] under the policy's draws."""
    rows: list[tuple[Any, ...]] = []
    observed, state, begins = env.reset(), None, np.ones(env.num_envs, np.bool_)
    for _ in range(steps):
        options: dict[str, Any] = {}
        if hasattr(model.policy.action_dist, "apply_masking"):  # type: ignore[union-attr]
            options[MASKS] = np.stack(env.env_method(MASKS))
        action, state = model.predict(observed, state=state, episode_start=begins, **options)
        following, reward, done, infos = env.step(action)
        seconds = [info[ELAPSED] for info in infos]
        rows.append((observed.copy(), reward.copy(), seconds, begins.astype(np.float32)))
        observed, begins = following, done
    return tuple(np.array(part) for part in zip(*rows, strict=True))


def returns(rewards: NDArray[Any], elapsed_s: NDArray[Any], gamma: float) -> NDArray[np.float32]:
    """Discounted by γ^τ [T, R], γ a second; behind the last step stands the mean of such a policy.

    That is its reward a second over −ln γ. The end of an episode is a cut, behind which the task
    goes on in the same way.
    """
    found = np.empty(rewards.shape)
    behind = np.full(rewards.shape[1], rewards.sum() / elapsed_s.sum() / -np.log(gamma))
    for step in reversed(range(len(rewards))):
        behind = rewards[step] + gamma ** elapsed_s[step] * behind
        found[step] = behind
    return found.astype(np.float32)


def _critic_parameters(policy: Any) -> list[Any]:
    parts = [policy.mlp_extractor.value_net, policy.value_net]
    if getattr(policy, "lstm_critic", None) is not None:
        parts.append(policy.lstm_critic)
    return [parameter for part in parts for parameter in part.parameters()]


def _values(policy: Any, observations: Tensor, begins: Tensor, stretches: int) -> Tensor:
    """[n · STRETCH] of stretches, one behind the other."""
    lstm = getattr(policy, "lstm_critic", None)
    if lstm is None:
        found: Tensor = policy.predict_values(observations)
        return found
    empty = torch.zeros(lstm.num_layers, stretches, lstm.hidden_size)
    found = policy.predict_values(observations, (empty, empty.clone()), begins)
    return found
