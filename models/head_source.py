"""A public draft head on the Hugging Face hub: which of its files are fetched.

Several heads, EAGLE's own among them, were published as a pickled file alone. It is fetched only
where there are no safetensors, and `models.head_checkpoint` reads tensors out of it and nothing
else.
"""

from pathlib import Path

from models.errors import UserError
from models.model_folder import hub_folder

PICKLED = "pytorch_model.bin"


def hub_head(hub_id: str) -> Path:
    """Folder of the head `org/name`; raises UserError when the hub does not give it."""
    folder = hub_folder(hub_id)
    if any(folder.glob("*.safetensors")) or (folder / PICKLED).is_file():
        return folder
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        HTTPError,
        LocalEntryNotFoundError,
        RemoteEntryNotFoundError,
    )

    try:
        # A snapshot's folder is named for its commit: both files are of one version.
        return Path(hf_hub_download(hub_id, PICKLED, revision=folder.name)).parent
    except RemoteEntryNotFoundError as error:
        raise UserError(
            f"The draft head {hub_id} on the Hugging Face hub holds neither safetensors nor "
            f"{PICKLED}; give another head with --draft-head FOLDER."
        ) from error
    except (LocalEntryNotFoundError, HTTPError, ConnectionError, TimeoutError) as error:
        raise UserError(
            f"The Hugging Face hub could not be reached for {PICKLED} of {hub_id}; connect to the "
            "network and try again, or give the head's folder with --draft-head FOLDER."
        ) from error
