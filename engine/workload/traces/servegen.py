"""ServeGen: arrivals generated from the published statistics of Alibaba's busiest clients.

Each client is a renewal process in each window of ten minutes, with the gap distribution (gamma or
Weibull) and the rate that were fitted to it; lengths come from its quantiles of those six hours.
The rates are a fleet's: another rate scales every client's alike and leaves the clock, so days stay
days. A client without lengths takes those of another, drawn in proportion to their rates.

Source: github.com/alibaba/ServeGen, Apache-2.0; Xiang et al., arXiv 2505.09999. The fitted `scale`
is not used, since the authors rescale drawn gaps to the window's rate too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import UserError
from engine.protocol import Bools, Floats, Ints
from engine.workload.renewal import Gaps, marks_until
from engine.workload.traces.rows import Rows, chosen_part, data_file, read_rows
from engine.workload.traces.trace import ArrivalSource, Trace

WINDOW_S, LENGTHS_S = 600.0, 21_600.0
QUANTILES = ("01", "05", "10", "20", "30", "40", "50", "60", "70", "80", "90", "95", "99")
LEVELS = np.array([float(q) / 100 for q in QUANTILES])
PATTERNS = ("Gamma", "Weibull")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Quantiles of a client's lengths by six-hour window, [W, Q] tokens."""

    window_s: Floats  # [W]
    prompt: Floats
    output: Floats

    def draw(self, times_s: Floats, generator: np.random.Generator) -> tuple[Ints, Ints]:
        """Prompt and output tokens of requests at these times; tails end at 1 and 99 %."""
        at = np.maximum(np.searchsorted(self.window_s, times_s, side="right") - 1, 0)
        pair = []
        for quantiles in (self.prompt, self.output):
            level = generator.random(len(times_s))
            drawn = [np.interp(u, LEVELS, quantiles[i]) for u, i in zip(level, at, strict=True)]
            pair.append(np.maximum(np.rint(np.array(drawn)), 1).astype(np.int64))
        return pair[0], pair[1]


@dataclass(frozen=True, eq=False)
class Client:
    """One client's windows in order; windows without traffic are absent."""

    window_s: Floats  # [W]
    rate_rps: Floats  # [W]
    shape: Floats  # [W]
    is_weibull: Bools  # [W]
    lengths: Lengths | None

    def expected(self, start_s: float, end_s: float) -> Floats:
        """[W] requests of each window inside [start_s, end_s)."""
        inside = np.minimum(self.window_s + WINDOW_S, end_s) - np.maximum(self.window_s, start_s)
        return self.rate_rps * np.maximum(inside, 0.0)

    def arrivals(
        self, start_s: float, end_s: float, factor: float, generator: np.random.Generator
    ) -> Floats:
        """[n] times in the window, on the trace's clock."""
        counts = factor * self.expected(start_s, end_s)
        times: list[Floats] = []
        for w in np.flatnonzero(counts > 0).tolist():
            gaps = Gaps(float(self.shape[w]), bool(self.is_weibull[w]))
            marks = marks_until(float(counts[w]), gaps, generator)
            begin_s = max(self.window_s[w], start_s)
            length_s = min(self.window_s[w] + WINDOW_S, end_s) - begin_s
            times.append(begin_s + marks / counts[w] * length_s)
        return np.concatenate(times) if times else np.zeros(0)


@dataclass(frozen=True, eq=False)
class ServeGen(ArrivalSource):
    """The kept clients of one model."""

    name: str
    clients: tuple[Client, ...]
    duration_s: float

    stretches = False

    def mean_rate_rps(self, start_s: float, end_s: float) -> float:
        """Requests per second that the clients' windows expect."""
        return sum(float(c.expected(start_s, end_s).sum()) for c in self.clients) / (
            end_s - start_s
        )

    def window(
        self, start_s: float, end_s: float, factor: float, generator: np.random.Generator
    ) -> Trace:
        """Drawn arrivals; other seeds draw others. Every client's rate is times `factor`."""
        lenders = [c for c in self.clients if c.lengths is not None]
        weights = np.array([float(c.expected(start_s, end_s).sum()) for c in lenders]) + 1e-9
        times: list[Floats] = []
        prompts: list[Ints] = []
        outputs: list[Ints] = []
        for client in self.clients:
            drawn_s = client.arrivals(start_s, end_s, factor, generator)
            lengths = client.lengths
            if lengths is None:
                chosen = generator.choice(len(lenders), p=weights / weights.sum())
                lengths = lenders[int(chosen)].lengths
            if lengths is None or not len(drawn_s):
                continue
            prompt, output = lengths.draw(drawn_s, generator)
            times.append(drawn_s - start_s)
            prompts.append(prompt)
            outputs.append(output)
        if not times:
            return Trace(self.name, np.zeros(0), end_s - start_s, _none(), _none())
        together = Trace(
            name=self.name,
            arrival_s=np.concatenate(times),
            duration_s=end_s - start_s,
            prompt_tokens=np.concatenate(prompts),
            output_tokens=np.concatenate(outputs),
        )
        return together.picked(np.argsort(together.arrival_s, kind="stable"))


def read_servegen(path: Path, part: str = "") -> ServeGen:
    """The clients of the model `part` in a folder with clients and lengths. Raises UserError."""
    if not path.is_dir():
        raise UserError(
            f"{path} is no folder; expected the one with clients.csv.gz and lengths.csv.gz"
        )
    clients = read_rows(
        data_file(path, ["clients.csv.gz"]),
        ("model", "client", "window_s", "rate_rps", "pattern", "shape"),
    )
    models = sorted(set(clients.cells["model"]))
    if not part:
        raise UserError(f"choose a model as servegen:{path}#{models[0]}, of {', '.join(models)}")
    clients = chosen_part(clients, "model", part, "model")
    columns = [f"{kind}_p{q}" for kind in ("prompt", "output") for q in QUANTILES]
    lengths = read_rows(
        data_file(path, ["lengths.csv.gz"]), ("model", "client", "window_s", *columns)
    )
    known = _lengths(chosen_part(lengths, "model", part, "model"))
    made = _clients(clients, known)
    if all(client.lengths is None for client in made):
        raise UserError(f"{lengths.path} has lengths of none of the clients in {clients.path}")
    end_s = max(float(client.window_s[-1]) for client in made) + WINDOW_S
    return ServeGen(f"servegen-{part}", tuple(made), end_s)


def _clients(rows: Rows, known: dict[str, Lengths]) -> list[Client]:
    window_s = rows.numbers("window_s", "seconds")
    rate_rps, shape = rows.numbers("rate_rps", "requests/s"), rows.numbers("shape", "shape", 1e-3)
    for i, pattern in enumerate(rows.cells["pattern"]):
        if pattern not in PATTERNS:
            raise UserError(
                f"{rows.path}, line {rows.lines[i]}: pattern is {pattern!r}; expected "
                f"{' or '.join(PATTERNS)}"
            )
    weibull = rows.equal("pattern", "Weibull")
    made = []
    for at in _by_client(rows, window_s):
        name = rows.cells["client"][int(at[0])]
        made.append(Client(window_s[at], rate_rps[at], shape[at], weibull[at], known.get(name)))
    return made


def _lengths(rows: Rows) -> dict[str, Lengths]:
    window_s = rows.numbers("window_s", "seconds")
    prompt, output = (
        np.stack([rows.numbers(f"{kind}_p{q}", "tokens") for q in QUANTILES], axis=1)
        for kind in ("prompt", "output")
    )
    return {
        rows.cells["client"][int(at[0])]: Lengths(window_s[at], prompt[at], output[at])
        for at in _by_client(rows, window_s)
    }


def _by_client(rows: Rows, window_s: Floats) -> Sequence[Ints]:
    """The rows of each client, by number, in order of their windows."""
    _, index = np.unique(np.array(rows.cells["client"]), return_inverse=True)
    order = np.lexsort((window_s, index))
    return np.split(order, np.flatnonzero(np.diff(index[order])) + 1)


def _none() -> Ints:
    return np.zeros(0, np.int64)
