"""Is this folder a model that DraftGym can serve? And the way to a folder from a hub id.

Only configuration and file names are looked at here; the weights are checked when
models' decoder loads them.
"""

import json
from pathlib import Path

from models.decoder_config import FAMILIES
from models.errors import UserError

SUPPORTED_TYPES = tuple(FAMILIES)
HUB_PATTERNS = ["*.safetensors", "*.json", "tokenizer*", "*.jinja"]


def check_folder(folder: Path) -> Path:
    """Return `folder` if it holds a supported model; else raise UserError.

    Pickled weights (.bin, .pt, .pth) are never read: they can run code.
    """
    config_path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder in Hugging Face format.")
    if not config_path.is_file():
        raise UserError(
            f"The folder {folder} has no config.json; give a folder in Hugging Face format "
            f"(config.json, model.safetensors, tokenizer.json)."
        )
    try:
        config = json.loads(config_path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{config_path} is not valid JSON ({error}); restore the file.") from error
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if model_type not in SUPPORTED_TYPES:
        raise UserError(
            f"{config_path} says model_type {model_type!r}; supported is "
            f"{', '.join(SUPPORTED_TYPES)}, choose a model of that family."
        )
    if not any(folder.glob("*.safetensors")):
        pickled = [path.name for end in ("bin", "pt", "pth") for path in folder.glob(f"*.{end}")]
        found = f" but pickled weights ({pickled[0]}), which are never loaded" if pickled else ""
        raise UserError(
            f"The folder {folder} has no safetensors weights{found}; save the model with "
            f"save_pretrained(folder, safe_serialization=True)."
        )
    return folder


def hub_folder(hub_id: str, hint: str = "") -> Path:
    """Download `org/name` from the Hugging Face hub (or find it in its cache), weights as
    safetensors only.

    Raises UserError when the hub is not reached or does not give it; `hint` is added to that.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_PATTERNS))
    except GatedRepoError as error:
        raise UserError(
            f"The model {hub_id} on the Hugging Face hub is gated; accept its terms there and log "
            f"in with `hf auth login`."
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"There is no model {hub_id} on the Hugging Face hub (or it is private).{hint}"
        ) from error
    except (LocalEntryNotFoundError, HTTPError, ConnectionError, TimeoutError) as error:
        raise UserError(
            f"The Hugging Face hub could not be reached for {hub_id} and no complete copy is in "
            f"its cache; connect to the network, or give a local folder with that model.{hint}"
        ) from error
    except ValueError as error:
        raise UserError(f"{hub_id!r} is not a valid hub id: {error}") from error
