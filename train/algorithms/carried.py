"""What callbacks remember between two rollouts: kept on the model, saved and loaded with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

ATTRIBUTE = "carried"


def carry(model: BaseAlgorithm, name: str, state: Mapping[str, Any]) -> None:
    """Keep a callback's state (plain numbers and texts, nested) under its name."""
    setattr(model, ATTRIBUTE, {**getattr(model, ATTRIBUTE, {}), name: dict(state)})


def carried(model: BaseAlgorithm, name: str) -> dict[str, Any]:
    """The state last kept under that name; empty where there is none."""
    return dict(getattr(model, ATTRIBUTE, {}).get(name, {}))
