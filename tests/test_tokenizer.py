"""The tokenizer agrees with transformers on the same files and keeps what GGUF declares."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.errors import UserError
from models.tokenizer import Tokenizer

CONVERSATIONS = [
    [{"role": "user", "content": "What is 12 + 345?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi  2 you\n\n"}],
    [
        {"role": "user", "content": "def f(x):\n    return x ** 2"},
        {"role": "assistant", "content": "That is a square: naïve, 日本語, 🙂."},
        {"role": "user", "content": ""},
    ],
]


@pytest.fixture(scope="module")
def tokenizer(smollm2_dir: Path) -> Tokenizer:
    return Tokenizer(smollm2_dir)


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chat_equals_transformers(
    smollm2_dir: Path,
    tokenizer: Tokenizer,
    messages: list[dict[str, str]],
    add_generation_prompt: bool,
) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2_dir).apply_chat_template(
        messages, add_generation_prompt=add_generation_prompt, return_dict=False
    )
    assert tokenizer.chat(messages, add_generation_prompt) == theirs


def test_every_digit_is_its_own_token(tokenizer: Tokenizer) -> None:
    text = "In 2024,  1234567890 and  2 more"
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode(text)]
    digits = [piece for piece in pieces if any(c.isdigit() for c in piece)]
    assert digits == [c for c in text if c.isdigit()]
    assert "".join(pieces) == text


def test_special_tokens_round_trip(smollm2_dir: Path, tokenizer: Tokenizer) -> None:
    config = json.loads((smollm2_dir / "tokenizer_config.json").read_text())
    special = config["additional_special_tokens"]
    assert len(special) == 17
    text = "a".join(special)
    ids = tokenizer.encode(text)
    assert [i for i in ids if i < 17] == list(range(17))
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a" * 16


@pytest.mark.parametrize("text", ["", " leading", "tabs\tand\r\nlines  ", "é 日本語 🙂 \x00 ﷽"])
def test_text_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sizes_and_end(tokenizer: Tokenizer) -> None:
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (49152, 2)
    prompt = tokenizer.chat_prompt("Hello")
    assert prompt == tokenizer.chat([{"role": "user", "content": "Hello"}])
    assert tokenizer.decode(prompt).endswith("Hello<|im_end|>\n<|im_start|>assistant\n")


def test_empty_prompt_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="prompt is empty"):
        tokenizer.chat_prompt(" \n")


def test_template_is_sandboxed_and_may_refuse(smollm2_dir: Path, tmp_path: Path) -> None:
    shutil.copy(smollm2_dir / "tokenizer.json", tmp_path)
    for template, said in [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ raise_exception('no system turn') }}", "no system turn"),
        ("{% for %}", "failed"),
    ]:
        config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": template}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        loaded = Tokenizer(tmp_path)
        assert loaded.eos_id == 2
        with pytest.raises(UserError, match=said):
            loaded.chat(CONVERSATIONS[0])


def test_missing_or_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer_config"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(UserError, match="not a tokenizer file"):
        Tokenizer(tmp_path)


def test_heavy_libraries_stay_out() -> None:
    code = (
        "import sys, models.tokenizer, models.registry, models.fetch\n"
        "print([m for m in ('torch', 'transformers', 'gguf', 'huggingface_hub', 'tokenizers')"
        " if m in sys.modules])"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
