"""From a drafter's name to the drafter: which names there are, what each needs, how it is made.

The network is loaded first and the drafter made later, since a network's positions bound the
cache rows that both backend and drafter are made for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from engine.drafters.eagle3 import Eagle3Drafter
from engine.drafters.model import ModelDrafter
from engine.drafters.prompt_lookup import PromptLookup
from engine.drafters.protocol import Drafter
from engine.errors import UserError
from engine.protocol import Limits
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.registry import draft_head_for, resolve

DRAFTERS = ("eagle3", "model", "prompt-lookup")
DraftNetwork = DraftHead | Decoder


def network_folder(
    drafter: str, model: str, draft_head: Path | None, draft_model: str | None
) -> Path | None:
    """The folder of what `drafter` needs to serve `model`, None for no network.

    Loads nothing, so that a wrong name is noticed at once. Raises UserError for an unknown
    drafter, for one that lacks its network, and for a network that it has no use for.
    """
    if drafter not in DRAFTERS:
        raise UserError(f"no drafter is called {drafter!r}; known are {', '.join(DRAFTERS)}")
    if draft_head is not None and drafter != "eagle3":
        raise UserError(f"a draft head was given, but the drafter is {drafter}; choose eagle3")
    if draft_model is not None and drafter != "model":
        raise UserError(f"a draft model was given, but the drafter is {drafter}; choose model")
    if drafter == "prompt-lookup":
        return None
    if drafter == "model":
        if draft_model is None:
            raise UserError(
                "the drafter `model` needs a draft model; give one with the target's vocabulary "
                "(draft_model, a name, folder or hub id)"
            )
        return resolve(draft_model)
    head = draft_head or draft_head_for(model)
    if head is None:
        raise UserError(
            f"no draft head is known for {model}; give one with --draft-head FOLDER "
            "(train it with `python -m models.distill`)"
        )
    return Path(head)


def load_network(
    drafter: str, folder: Path | None, target: Decoder, target_folder: Path, dtype: torch.dtype
) -> DraftNetwork | None:
    """The network in `folder`, where the target is.

    Raises UserError when it is damaged or not for this target.
    """
    if folder is None:
        return None
    if drafter == "eagle3":
        return DraftHead.from_folder(folder, target.embedding, dtype)
    # Equal sizes would not do: the same ids must stand for the same texts.
    if _tokens(folder) != _tokens(target_folder):
        raise UserError(
            f"{folder}: the draft model's tokenizer has other tokens than the target's in "
            f"{target_folder}; choose a draft model of the target's family"
        )
    return Decoder.from_folder(folder, dtype, target.device)


def positions(network: DraftNetwork | None) -> int | None:
    """Rows that the network has positions for, None for no bound."""
    if network is None:
        return None
    if isinstance(network, DraftHead):
        return network.config.max_position_embeddings
    return network.config.context


def make_drafter(
    network: DraftNetwork | None, target: Decoder, limits: Limits, capacity: int
) -> Drafter:
    """A drafter of the kind that the network is of; without one it looks n-grams up.

    `capacity` is the cache rows a slot. Raises UserError when the network does not fit.
    """
    if isinstance(network, DraftHead):
        layers = network.feature_layers(target.config.layers)
        width = len(layers) * target.config.hidden_size
        shape = (limits.slots, capacity, width)
        features = torch.zeros(shape, dtype=target.dtype, device=target.device)
        return Eagle3Drafter(network, features, limits, capacity, layers)
    if isinstance(network, Decoder):
        return ModelDrafter(network, target, limits, capacity)
    return PromptLookup(target.config.vocab_size, limits)


def _tokens(folder: Path) -> tuple[Any, list[tuple[int, str]]]:
    """The vocabulary of a folder's tokenizer, and the tokens added to it."""
    try:
        raw = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        added = [(token["id"], token["content"]) for token in raw.get("added_tokens", [])]
        return raw["model"]["vocab"], sorted(added)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder}: no readable tokenizer.json ({error}); give a complete model folder"
        ) from error
