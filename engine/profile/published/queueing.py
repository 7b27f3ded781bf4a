"""A small simulation of vLLM's scheduler on a hardware profile, to test the profile on whole runs.

First come, first served: every iteration gives each running request its next token, fills the rest
of its token budget with chunks of waiting prompts, and takes as long as the profile says. When the
cache is full the youngest request gives way; vLLM's prefix cache still has all but its last pages
when it comes back. The engine's own scheduler is not used: this is about whether a profile predicts
a server that somebody else measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Floats, Ints

PAGE_TOKENS = 16
LOST_PAGES = 2  # of who gave way: those that others took, one each, before he was back


class Run(NamedTuple):
    """What happened to N requests."""

    queue_s: Floats  # [N] until the first chunk
    ttft_s: Floats  # [N] until the first token
    tpot_s: Floats  # [N] mean of the further tokens
    finished_s: float
    most_running: int
    preemptions: int


class Server(NamedTuple):
    """How the measured server was set."""

    most_running: int
    batch_tokens: int
    kv_pool_tokens: int


@dataclass
class _Request:
    index: int
    prompt: int
    output: int
    computed: int = 0
    """Tokens whose keys and values lie in the cache."""
    planned: int = 0
    """Tokens that this iteration computes."""
    emitted: int = 0
    cached: int = 0
    """Tokens that the prefix cache kept when it gave way."""

    @property
    def behind(self) -> int:
        """Tokens of its context that are to be computed before it can emit the next."""
        return self.prompt + self.emitted - self.computed

    @property
    def pages(self) -> int:
        """What it holds when this iteration is over."""
        return -(-(self.computed + self.planned) // PAGE_TOKENS)


class _Scheduler:
    """Who runs, who waits, and what the next iteration does."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pages = server.kv_pool_tokens // PAGE_TOKENS
        self.held = 0
        self.running: list[_Request] = []
        self.waiting: deque[_Request] = deque()
        self.preemptions = 0

    def plan(self) -> None:
        """Set what everybody computes next: running requests first, then prompts from the queue."""
        budget, preempted = self.server.batch_tokens, self.preemptions
        position = 0
        while position < len(self.running):
            budget -= self._give(self.running[position], budget)
            while self.held > self.pages:
                self._evict()
            position += 1
        full = preempted != self.preemptions
        while self.waiting and budget > 0 and not full:
            request = self.waiting[0]
            request.computed = request.cached
            self.held += -(-request.computed // PAGE_TOKENS)
            given = self._give(request, budget)
            if self.held > self.pages or len(self.running) == self.server.most_running:
                self._take_all(request)
                break
            self.running.append(self.waiting.popleft())
            budget -= given

    def retire(self) -> None:
        """Let go of who has all its output."""
        done = [r for r in self.running if r.emitted == r.output]
        self.held -= sum(r.pages for r in done)
        self.running = [r for r in self.running if r.emitted < r.output]

    def _give(self, request: _Request, budget: int) -> int:
        self.held -= request.pages
        request.planned = min(request.behind, budget)
        self.held += request.pages
        return request.planned

    def _take_all(self, request: _Request) -> None:
        self.held -= request.pages
        request.computed = request.planned = 0

    def _evict(self) -> None:
        """The youngest gives way, until there is room."""
        youngest = self.running.pop()
        youngest.cached = max(youngest.computed - LOST_PAGES * PAGE_TOKENS, 0)
        self._take_all(youngest)
        self.waiting.appendleft(youngest)
        self.preemptions += 1


def simulate(
    profile: HardwareProfile, arrival_s: Floats, prompts: Ints, outputs: Ints, server: Server
) -> Run:
    """Serve N requests, `arrival_s` [N] ascending, on the modelled server.

    A request larger than the pool alone would never end; raises ValueError for one.
    """
    if (np.asarray(prompts) + outputs).max() > server.kv_pool_tokens - PAGE_TOKENS:
        raise ValueError(f"a request does not fit in a pool of {server.kv_pool_tokens} tokens")
    count = len(arrival_s)
    queue_s, first_s, last_s = (np.full(count, np.nan) for _ in range(3))
    scheduler = _Scheduler(server)
    now, arrived, most = 0.0, 0, 0
    while arrived < count or scheduler.waiting or scheduler.running:
        if not scheduler.waiting and not scheduler.running:
            now = max(now, float(arrival_s[arrived]))
        while arrived < count and arrival_s[arrived] <= now:
            scheduler.waiting.append(
                _Request(arrived, int(prompts[arrived]), int(outputs[arrived]))
            )
            arrived += 1
        scheduler.plan()
        working = [r for r in scheduler.running if r.planned]
        for request in working:
            if np.isnan(queue_s[request.index]):
                queue_s[request.index] = now - arrival_s[request.index]
        now += iteration_s(profile, [(r.planned, r.computed, r.emitted > 0) for r in working])
        most = max(most, len(scheduler.running))
        for request in working:
            request.computed += request.planned
            request.planned = 0
            if request.behind == 0:
                request.emitted += 1
                if np.isnan(first_s[request.index]):
                    first_s[request.index] = now
                last_s[request.index] = now
        scheduler.retire()
    tpot_s = (last_s - first_s) / np.maximum(np.asarray(outputs) - 1, 1)
    return Run(queue_s, first_s - arrival_s, tpot_s, now, most, scheduler.preemptions)


def iteration_s(profile: HardwareProfile, work: Sequence[tuple[int, int, bool]]) -> float:
    """Seconds of one pass over everybody's (tokens, tokens before them, has begun its answer).

    Decoding costs what verifying as many roots does. Chunks ride along in the same pass: they cost
    what the pass becomes longer, their attention, and a row of logits.
    """
    decoding = [before for tokens, before, begun in work if begun and tokens == 1]
    chunks = [(tokens, before) for tokens, before, begun in work if not (begun and tokens == 1)]
    rows, kv_tokens = len(decoding), sum(decoding)
    seconds = profile.host.at(rows, kv_tokens, len(work))
    if rows:
        seconds += profile.verify.at(rows, kv_tokens, rows)
    if chunks:
        prefill = profile.prefill
        read = sum(tokens for tokens, _ in chunks)
        seconds += prefill.curve.at(rows + read) - (prefill.curve.at(rows) if rows else 0.0)
        seconds += sum(prefill.attended_s * tokens * before for tokens, before in chunks)
        seconds += prefill.request_s * (not rows)
    return seconds
