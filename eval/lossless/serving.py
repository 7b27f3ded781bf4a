"""Serving requests under a controller for their texts, and what margins let through meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.classes import DEFAULT_CLASSES
from engine.loop import Engine
from engine.observability.observing import serve_observed
from engine.protocol import Controller, Outcome, View
from engine.request import Request, RequestRecord, Status
from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from eval.contenders import engine_makers


@dataclass
class Texts:
    """What serving brought."""

    outputs: list[list[int]]
    """In the order of the requests."""
    emitted: int = 0
    iterations: int = 0
    """Of requests: one that two of them shared counts twice."""
    let_through: int = 0
    """Tokens that the target did not choose and a margin accepted."""
    given_up: float = 0.0
    """Log-ratio by which those fell short, summed."""

    @property
    def tokens_per_iteration(self) -> float:
        """Above 1 only where drafts were accepted."""
        return self.emitted / self.iterations if self.iterations else float("nan")


class Margins:
    """An observer that counts tokens, and those that margins let through."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add an iteration."""
        self.texts.emitted += int(outcome.accepted_length.sum())
        self.texts.iterations += int(outcome.ran.sum())
        self.texts.let_through += int(outcome.let_through[outcome.ran].sum())
        self.texts.given_up += float(outcome.given_up[outcome.ran].sum())

    def on_record(self, record: RequestRecord) -> None:
        """Texts are read from the requests."""

    def close(self) -> None:
        """Nothing is written."""


def requests_of(
    prompts: Sequence[list[int]], tokens: int, sampling: Sequence[SamplingParams]
) -> list[Request]:
    """Requests that all arrive at once and end at `tokens` tokens, whatever they say."""
    return [
        Request(i, 0, list(prompt), tokens, 0.0, sampling=params)
        for i, (prompt, params) in enumerate(zip(prompts, sampling, strict=True))
    ]


def serve(server: LiveServer, name: str, controller: Controller, requests: list[Request]) -> Texts:
    """Serve all of them to the end. Raises RuntimeError where one did not finish."""
    make = engine_makers(server, {name: controller}, DEFAULT_CLASSES, server.settings)[name]
    texts = Texts([])
    records = serve_observed(make(requests), controller, [Margins(texts)])
    unfinished = [record.id for record in records if record.status is not Status.FINISHED]
    if unfinished:
        raise RuntimeError(f"{name}: requests {unfinished} did not finish")
    texts.outputs = [list(request.output) for request in requests]
    return texts
