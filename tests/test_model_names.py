"""What is no model, or cannot be had, is refused in one clear sentence."""

import errno
import json
from pathlib import Path

import pytest

from models import download, fetch, registry
from models.errors import UserError


def test_unknown_names_are_refused_with_a_hint() -> None:
    for name, said in [
        ("smollm2-135m-instrukt", "Did you mean 'smollm2-135m-instruct'"),
        ("zzz", "Known are: smollm2-135m-instruct"),
        ("", "not known"),
        ("a/b/c", "not known"),
        ("./nowhere", "no folder"),
    ]:
        with pytest.raises(UserError, match=said):
            registry.resolve(name)


def test_folders_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        registry.resolve(str(tmp_path))
    config = tmp_path / "config.json"
    for text, said in [("{", "not valid JSON"), ("[]", "None"), ('{"model_type": "t5"}', "'t5'")]:
        config.write_text(text)
        with pytest.raises(UserError, match=said):
            registry.resolve(str(tmp_path))
    config.write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UserError, match="no safetensors weights; save"):
        registry.resolve(str(tmp_path))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UserError, match=r"pytorch_model\.bin\), which are never loaded"):
        registry.resolve(str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert registry.resolve(str(tmp_path)) == tmp_path
    with pytest.raises(UserError, match="is a file"):
        registry.resolve(str(config))


def test_hub_out_of_reach_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def offline(hub_id: str, allow_patterns: list[str]) -> str:
        assert not any(pattern.endswith(("bin", "*.py")) for pattern in allow_patterns)
        raise hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(UserError, match="could not be reached for org/some-model"):
        registry.resolve("org/some-model")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("WARNING: Retrying: NewConnectionError(...)\nERROR: No matching", "could not be reached"),
        ("ERROR: Exception:\nIncompleteRead(8 bytes read)", "broke off"),
        ("python: No module named pip", "ensurepip"),
        ("ERROR: No matching distribution found for x", "No matching distribution found for x"),
        ("", "no message"),
    ],
)
def test_failures_of_pip_are_told_apart(log: str, said: str) -> None:
    source = registry.entries()["smollm2-135m-instruct"].source
    error = download.explain_pip(log, source)
    assert isinstance(error, UserError)
    assert said in str(error)


def test_pip_on_a_full_disk_keeps_its_errno() -> None:
    source = registry.entries()["smollm2-135m-instruct"].source
    error = download.explain_pip("ERROR: [Errno 28] No space left on device", source)
    assert isinstance(error, OSError) and error.errno == errno.ENOSPC


def test_command_says_one_line_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch.main(["smollm"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
