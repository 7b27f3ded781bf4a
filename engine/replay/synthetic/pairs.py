"""Pairs of models by name: what was published of their acceptance, and the parameters it gives.

The figures stand in `engine/replay/data/pairs.toml`, which `fit.py` writes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import UserError
from engine.replay.synthetic.model import Drafting, Tier

PAIRS_FILE = Path(__file__).resolve().parents[1] / "data" / "pairs.toml"


class Published(NamedTuple):
    """A published figure."""

    tier: Tier
    tokens: float
    """Emitted an iteration, bonus included."""


@dataclass(frozen=True)
class TextKind:
    """Texts of one benchmark."""

    published: tuple[Published, ...]
    easy_share: float


@dataclass(frozen=True)
class Pair:
    """A target, a drafter and what is known of them."""

    name: str
    model: str
    drafter: str
    source: str
    licence: str
    drafting: Drafting
    kinds: dict[str, TextKind]
    classes: dict[str, str]
    """By SLO class the kind that stands for its texts."""


def load_pairs(path: Path = PAIRS_FILE) -> dict[str, Pair]:
    """All pairs by name. Raises UserError for a file that is none of pairs."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: _pair(name, entry) for name, entry in raw["pair"].items()}
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} holds no pairs ({error}); make it with `python -m engine.replay.synthetic "
            "--fit TABLE`"
        ) from error


def find_pair(name: str) -> Pair:
    """One that ships with DraftGym; raises UserError for an unknown name."""
    pairs = load_pairs()
    if name not in pairs:
        raise UserError(f"no pair is called {name!r}; expected one of {', '.join(pairs)}")
    return pairs[name]


def _pair(name: str, raw: dict[str, Any]) -> Pair:
    kinds = {
        kind: TextKind(
            tuple(Published(Tier(*map(int, row[:3])), float(row[3])) for row in entry["published"]),
            float(entry["easy_share"]),
        )
        for kind, entry in raw["kinds"].items()
    }
    unknown = set(raw["classes"].values()) - set(kinds)
    if unknown:
        raise ValueError(f"pair {name} has no kind {', '.join(sorted(unknown))}")
    return Pair(
        name,
        raw["model"],
        raw["drafter"],
        raw["source"],
        raw["licence"],
        Drafting(**raw["drafting"]),
        kinds,
        raw["classes"],
    )


def as_toml(pairs: list[Pair], heading: str) -> str:
    """A file that `load_pairs` reads; `heading` goes on top as comments."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    for pair in pairs:
        lines += ["", f'[pair."{pair.name}"]']
        lines += [f'{key} = "{getattr(pair, key)}"' for key in ("model", "drafter", "source")]
        lines += [f'licence = "{pair.licence}"']
        inner = ", ".join(f"{k} = {v:.6g}" for k, v in pair.drafting._asdict().items())
        lines += [f"drafting = {{ {inner} }}"]
        inner = ", ".join(f'{name} = "{kind}"' for name, kind in pair.classes.items())
        lines += [f"classes = {{ {inner} }}", "", f'[pair."{pair.name}".kinds]']
        for name, kind in pair.kinds.items():
            rows = ", ".join(f"[{', '.join(map(str, p.tier))}, {p.tokens}]" for p in kind.published)
            lines += [f"{name} = {{ easy_share = {kind.easy_share:.6g}, published = [{rows}] }}"]
    return "\n".join(lines) + "\n"
