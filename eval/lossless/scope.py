"""What a run of the proof covers, and the live server that it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.drawing import prompt_encoder
from engine.errors import UserError
from engine.profile.published import open_profile
from engine.replay.server import DEFAULT_PROFILE
from engine.serving import LiveConfig, LiveServer
from engine.workload.prompt_set import PromptSet

LONGEST_PROMPT = 96
SHORT_PROMPT = 24
"""Tokens of the prompts among which the law's is chosen: it is read once a draw."""


@dataclass(frozen=True)
class Scope:
    """Which pair, which controllers, how much of it."""

    policy: tuple[str, ...] = ("chain(4)", "eagle3(3,4,8)", "adaserve", "slack-priced")
    model: str = "smollm2-135m-instruct"
    drafter: str = "eagle3"
    draft_head: Path | None = None
    draft_model: str | None = None
    dtype: str = "float32"
    device: str = "auto"
    prompts: int = 16
    """Texts a controller, greedy and sampled each."""
    tokens: int = 48
    """Of each text."""
    draws: int = 600
    """Beginnings a controller, by which the law is judged."""
    choices: int = 3
    """Tokens that the law's sampling chooses among at each place."""
    beginning: int = 4
    """Tokens of a beginning; the first comes from the prompt's own pass, the others from trees."""
    seed: int = 0

    def check(self) -> None:
        """Raise UserError for what cannot be run."""
        for name, least in (
            ("prompts", 1), ("tokens", 2), ("draws", 100), ("choices", 2), ("beginning", 2),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise UserError(f"--{name} {getattr(self, name)}: expected {least} or more")
        if self.choices**self.beginning > self.draws:
            raise UserError(
                f"--choices {self.choices} and --beginning {self.beginning} make "
                f"{self.choices**self.beginning} beginnings, more than the {self.draws} --draws; "
                "ask for fewer or draw more"
            )


@contextmanager
def server_of(scope: Scope) -> Iterator[LiveServer]:
    """The live engine of the scope; takes seconds. Raises UserError.

    Controllers that need prices take those that ship where this machine has none: texts must not
    hang on them, and without them nothing would be speculated.
    """
    server = LiveServer.load(
        LiveConfig(
            model=scope.model,
            draft_head=scope.draft_head,
            dtype=scope.dtype,
            drafter=scope.drafter,
            draft_model=scope.draft_model,
            device=scope.device,
        )
    )
    if server.profile is None:
        server.profile = open_profile(DEFAULT_PROFILE)
    try:
        yield server
    finally:
        server.close()


def prompts_of(server: LiveServer, count: int, longest: int = LONGEST_PROMPT) -> list[list[int]]:
    """Shipped prompts as tokens, the classes by turns; of a long one the last `longest`."""
    by_class = PromptSet.load().by_class.values()
    turns = [text for texts in zip(*by_class, strict=False) for text in texts]
    encode = prompt_encoder(server)
    return [list(encode(text))[-longest:] for text in turns[:count]]
