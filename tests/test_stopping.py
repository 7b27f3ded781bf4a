"""Stop strings found token by token are those of the whole text, and cost no more than its length.

Streams are random, over vocabularies whose tokens are letters, parts of characters and broken
bytes, under the decoders of real tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from engine.request import Request
from engine.stopping import MOST_UNFINISHED, Detokenize, StopSearch, StopStrings

TEXTS = ("a", "b", " a", "ab", "é", "€", "😀", " ", "  ", "x€", "b é")
PIECES = [
    *(text.encode() for text in TEXTS),
    *(bytes([byte]) for byte in (0x82, 0xAC, 0xE2, 0xC3, 0xA9, 0xF0, 0x9F, 0xFF)),
    *(b"\xe2\x82", b"a\xe2", b"\x82\xac ", b"\xac\xff\xe2"),
]
BROKEN = "\ufffd"


def byte_level() -> tuple[Detokenize, int]:
    """GPT-2's and Llama 3's kind: a token is bytes, which need not be whole characters."""
    letters = _byte_letters()
    vocab = {"".join(letters[byte] for byte in piece): i for i, piece in enumerate(PIECES)}
    return _decode(vocab, decoders.ByteLevel()), len(vocab)


def byte_fallback() -> tuple[Detokenize, int]:
    """Llama 2's kind: spaces are marked, the first is dropped, rare characters are byte tokens."""
    names = [text.replace(" ", "▁") for text in TEXTS]
    names += [f"<0x{byte:02X}>" for byte in (0x82, 0xAC, 0xE2, 0xC3, 0xA9, 0xFF)]
    decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _decode({name: i for i, name in enumerate(names)}, decoder), len(names)


def metaspace() -> tuple[Detokenize, int]:
    """Sentence pieces without bytes."""
    names = [text.replace(" ", "▁") for text in TEXTS]
    return _decode({name: i for i, name in enumerate(names)}, decoders.Metaspace()), len(names)


def _decode(vocab: dict[str, int], decoder: decoders.Decoder) -> Detokenize:
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=min(vocab)))
    tokenizer.decoder = decoder
    return tokenizer.decode


def _byte_letters() -> dict[int, str]:
    """The letter by which a byte-level vocabulary writes each byte, as GPT-2 numbers them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in letters]
    letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    assert set(letters.values()) == set(ByteLevel.alphabet())
    return letters


KINDS: dict[str, Callable[[], tuple[Detokenize, int]]] = {
    "byte level": byte_level,
    "byte fallback": byte_fallback,
    "metaspace": metaspace,
}


def full_search(tokens: Sequence[int], stops: Sequence[str], decode: Detokenize) -> int | None:
    """The plain way: the whole text anew for every token."""
    for count in range(1, len(tokens) + 1):
        text = decode(list(tokens[:count]))
        if any(stop in text for stop in stops):
            return count
    return None


def search(tokens: Sequence[int], stops: Sequence[str], decode: Detokenize) -> int | None:
    """The same by `StopSearch`."""
    searching = StopSearch(stops, decode)
    return next((n for n, token in enumerate(tokens, 1) if searching.push(token)), None)


def draw_stops(rng: np.random.Generator, text: str, broken: bool) -> list[str]:
    """Pieces of the text and of other texts, of one to nine characters."""
    stops = []
    for _ in range(int(rng.integers(1, 4))):
        begin, length = int(rng.integers(max(len(text), 1))), int(rng.integers(1, 10))
        piece = text[begin : begin + length] if rng.random() < 0.7 else ""
        if not piece or (BROKEN in piece and not broken):
            piece = "".join(rng.choice(list("ab €é"), length))
        stops.append(piece)
    return stops


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_finds_what_the_whole_text_has(kind: str) -> None:
    decode, size = KINDS[kind]()
    rng = np.random.default_rng(0)
    found = late = 0
    for _ in range(400):
        tokens = rng.integers(0, size, int(rng.integers(1, 60))).tolist()
        # Byte fallback takes whole characters back, which stops of broken ones could tell.
        stops = draw_stops(rng, decode(tokens), broken=kind == "byte level")
        wanted = full_search(tokens, stops, decode)
        assert search(tokens, stops, decode) == wanted, (tokens, stops)
        found += wanted is not None
        late += wanted is not None and wanted > 10
    assert 150 < found < 400
    assert late > 40


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
def test_bytes_that_never_make_a_character_hide_no_later_stop(kind: str) -> None:
    decode, size = KINDS[kind]()
    by_text = {decode([token]): token for token in range(size)}
    broken = next(t for t in range(size) if decode([t]) == BROKEN)
    for count in range(4 * MOST_UNFINISHED):
        tokens = [*[broken] * count, *(by_text[text] for text in ("ab", "€", "b"))]
        assert search(tokens, ["b€b"], decode) == len(tokens)
        assert search(tokens, ["ba"], decode) is None


def test_a_character_in_the_midst_of_broken_bytes_is_whole() -> None:
    # Broken bytes are settled every few tokens, which must not cut in two what is a character.
    decode, _ = byte_level()
    broken, *euro = (PIECES.index(piece) for piece in (b"\xff", b"\xe2\x82", b"\xac\xff\xe2"))
    for before in range(3 * MOST_UNFINISHED):
        tokens = [*[broken] * before, *euro, *[broken] * (2 * MOST_UNFINISHED)]
        for stop, end in (("€", before + 2), (f"€{BROKEN * 20}", before + 20)):
            assert full_search(tokens, [stop], decode) == end
            assert search(tokens, [stop], decode) == end


@pytest.mark.parametrize("kind", ["byte level", "byte fallback", "metaspace"])
@pytest.mark.parametrize("only_broken", [False, True])
def test_the_cost_is_linear_in_the_output(kind: str, only_broken: bool) -> None:
    decode, size = KINDS[kind]()
    rng = np.random.default_rng(1)
    broken = [token for token in range(size) if decode([token]) == BROKEN]
    spent: dict[int, int] = {}
    for length in (500, 2000):
        made = 0

        def counting(tokens: list[int]) -> str:
            nonlocal made
            made += len(tokens)
            return decode(tokens)

        choices = broken if only_broken and broken else list(range(size))
        tokens = rng.choice(choices, length).tolist()
        assert search(tokens, ["never to be found"], counting) is None
        spent[length] = made
    assert spent[2000] < 4.5 * spent[500]
    assert spent[2000] < 2000 * 2 * (MOST_UNFINISHED + 8)


def test_searches_are_kept_by_request_until_it_ends() -> None:
    def letters(tokens: list[int]) -> str:
        return "".join(chr(ord("a") + token) for token in tokens)

    one, other = (Request(i, 0, [1], 9, 0.0, stop_strings=("abc", "xyz")) for i in range(2))
    stops = StopStrings(letters)
    assert stops.tokens_until_stop(one, [0]) is None
    assert stops.tokens_until_stop(other, [1, 2]) is None
    assert stops.tokens_until_stop(one, [1, 2, 3]) == 2
    stops.forget(0)
    assert stops.tokens_until_stop(one, [1, 2, 3]) is None  # a new text
    assert stops.tokens_until_stop(Request(2, 0, [1], 9, 0.0), [0, 1, 2]) is None
    assert StopStrings(None).tokens_until_stop(one, [0, 1, 2]) is None
