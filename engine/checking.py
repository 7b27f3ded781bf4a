"""What an engine refuses before it serves anything: requests and sizes that make no sense here.

What can be told from a request alone is `Request.check`'s to say, and plans are `engine.limits`'s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from engine.backends.protocol import Backend
from engine.classes import ClassTable
from engine.errors import UserError
from engine.request import Request
from engine.settings import EngineSettings


def check_backend(backend: Backend, settings: EngineSettings) -> None:
    """Raise UserError where the engine would be larger than what its backend was made for.

    A backend without `limits` or `capacity` of its own fits any.
    """
    limits = getattr(backend, "limits", settings.limits)
    if settings.limits != limits:
        raise UserError(
            f"the engine's settings have {settings.limits}, but its backend was made for {limits}; "
            "give both the same limits"
        )
    capacity = getattr(backend, "capacity", settings.capacity_tokens)
    if settings.capacity_tokens > capacity:
        raise UserError(
            f"the engine's capacity_tokens is {settings.capacity_tokens}, but its backend holds "
            f"{capacity} a slot; expected at most as many"
        )


def check_requests(
    requests: Sequence[Request],
    classes: ClassTable,
    context_tokens: int,
    vocab_size: int,
    makes_text: bool,
) -> None:
    """Raise UserError for what could never be served.

    `context_tokens` holds prompt and output together; `makes_text` says whether stop strings can
    be looked for.
    """
    for request in requests:
        request.check(context_tokens)
        _check_numbers(request, classes, vocab_size)
        if request.stop_strings and not makes_text:
            raise UserError(
                f"request {request.id} has stop strings, but the engine cannot make text of "
                "tokens; give it `detokenize`, or use stop_ids"
            )
    counts = Counter(request.id for request in requests)
    twice = [str(request_id) for request_id, count in counts.items() if count > 1]
    if twice:
        raise UserError(f"requests share the id {', '.join(twice)}; give each its own")


def _check_numbers(request: Request, classes: ClassTable, vocab_size: int) -> None:
    """Class, arrival and tokens are inside what they index or are compared with."""
    if not 0 <= request.slo_class < len(classes.classes):
        raise UserError(
            f"request {request.id}: slo_class is {request.slo_class}; expected 0 to "
            f"{len(classes.classes) - 1}, the place of one of {', '.join(classes.names)}"
        )
    if not math.isfinite(request.arrival_s):
        raise UserError(
            f"request {request.id}: arrival_s is {request.arrival_s}; expected a finite time"
        )
    lowest, highest = min(request.prompt), max(request.prompt)
    if lowest < 0 or highest >= vocab_size:
        raise UserError(
            f"request {request.id}: the prompt has token {lowest if lowest < 0 else highest}; "
            f"expected ids from 0 to {vocab_size - 1}, so use the tokenizer of this model"
        )
