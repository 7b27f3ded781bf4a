"""A request whose answer is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import UserError
from engine.request import Request


@dataclass
class RecordedRequest(Request):
    """Asks for the recorded text with index `text`, of which `prompt` is the prompt."""

    text: int = field(kw_only=True)
    past_end: bool = field(default=False, kw_only=True)
    """It goes on behind the target's own end, since a trace says that its answer was so long."""

    def check(self, context: int) -> None:
        """Raise UserError for what no recording can answer, beside what no context can hold."""
        super().check(context)
        if self.sampling.temperature > 0 or self.sampling.repetition_penalty != 1.0:
            raise UserError(
                f"request {self.id} asks for sampled or penalised text, but a recording holds the "
                "target's greedy answers; leave `sampling` out, or serve it with --backend live"
            )
        if self.sampling.logprobs:
            raise UserError(
                f"request {self.id} asks for log probabilities, which are not recorded; leave "
                "`logprobs` out, or serve it with --backend live"
            )
