"""Learning-to-Draft's task (arXiv 2603.01639) as options of our environment, for comparison.

`gymnasium.make("DraftGym/ServeLive-v0", **learning_to_draft())`, or `Serve-v0` on replay; to train
on it, `python train.py --preset learning-to-draft`. The same as published: one request at a time, a
decision every iteration, path scores and position observed (`policies.path_features`), a beam of
fixed width, and tokens per second of the whole cycle rewarded. Ours are counted in multiples of
ordinary decoding, theirs in hundreds a second. Objectives play no part.

Not the same. Depth and size are one action, chosen before an iteration from the tree of the one
before; theirs are two policies, asked while and after the tree at hand is drafted. Depth 0 is
legal. Time is the engine's clock, in which reading a prompt counts for the iteration that it
delays. Their episode is one cycle. With one decision a cycle that is γ = 0 here; above 0 a decision
is also credited with what it leaves to the next one.

Their set-up of Stable-Baselines3's PPO: n_steps 128, batch_size 64, n_epochs 1, learning rate 3e-4
(risen over 1 % of training, then falling to 0), policy (512, 256), value (1024, 512), γ 0.9 for
sizes and 0.999 for depths, 100 k decisions on sizes and 1 M on depths, HumanEval's prompts alone.
"""

from __future__ import annotations

from typing import Any

from engine.classes import ClassTable, SLOClass
from engine.workload import WorkloadConfig
from envs.reward import GoodputReward
from policies.actions import ActionTable

CLASS = "coding"
SIZE_STEP = 4


def learning_to_draft(
    depth: int = 6,
    width: int = 8,
    nodes: int = 32,
    duration_s: float = 120.0,
    rate_rps: float = 1.0,
) -> dict[str, Any]:
    """Options of `gymnasium.make`; what is given beside them replaces them.

    Trees of up to `depth` layers and `nodes` nodes, in steps of 4 (theirs: 10), of beams of
    `width`; requests of the class `coding` that come for `duration_s`, `rate_rps` of them a second.
    Gaps between them count for nothing. Raises UserError for sizes that are none.
    """
    actions = ActionTable(
        (CLASS,),
        depths=tuple(range(depth + 1)),
        widths=(width,),
        nodes=tuple(range(SIZE_STEP, nodes + 1, SIZE_STEP)),
    )
    return {
        "observation": "learning-to-draft",
        "slots": 1,
        "decide_every": 1,
        "classes": ClassTable((SLOClass(CLASS, float("inf")),)),
        "actions": actions,
        "reward": GoodputReward("rate", violation_tokens=0.0),
        "workload": WorkloadConfig(
            name="learning-to-draft", duration_s=duration_s, rate_rps=rate_rps, mix={CLASS: 1.0}
        ),
    }
