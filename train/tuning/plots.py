"""Pictures of a study: history, importances, slices and, of two objectives, the Pareto front.

As HTML by plotly (which loads its script from a file beside them, so no network is needed) and as
PNG by matplotlib. Both are optional: what cannot be drawn is said, never a reason to fail.
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.atomic_write import write_atomic
from train.tuning.figures import Figure

if TYPE_CHECKING:
    from optuna import Study

FEWEST = 4
"""Completed trials, for importances."""
SIDE_BY_SIDE = 5
"""Parameters in one picture of slices."""
SCRIPT = "plotly.min.js"


def draw(study: Study, figures: Sequence[Figure], folder: Path) -> tuple[list[str], list[str]]:
    """Write what can be drawn into `folder`; names of the files, and what was left out and why."""
    found, left_out = drawings(study, figures)
    files: list[str] = []
    for package, write in (("plotly", _write_html), ("matplotlib", _write_png)):
        if importlib.util.find_spec(package) is None:
            kind = "HTML" if package == "plotly" else "PNG"
            left_out.append(f"all {kind}: needs {package} (pip install {package})")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna's experimental ones, matplotlib's of layout
            files += [write(name, drawing, study, folder) for name, drawing in found.items()]
    return files, left_out


Drawing = Callable[[Any, "Study"], Any]
"""Draws with one of Optuna's two modules of visualisation."""


def drawings(study: Study, figures: Sequence[Figure]) -> tuple[dict[str, Drawing], list[str]]:
    """By name of the file; and what cannot be drawn."""
    import optuna

    labels = [f"gain in {f.name}, {f.unit}" for f in figures]
    found: dict[str, Drawing] = {}
    left_out: list[str] = []
    # Pruned ones have a value as well, with which nothing is ranked.
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    several = len(figures) > 1
    for place, figure in enumerate(figures):
        suffix = f"-{figure.name}" if several else ""
        options: dict[str, Any] = {"target_name": labels[place]}
        # This evaluator needs no further package, unlike those that grow forests did. Of a target
        # it takes the low end for the good one; without a target it asks the study.
        ranked = {**options, "evaluator": optuna.importance.PedAnovaImportanceEvaluator()}
        if several:
            options["target"] = _Objective(place)
            ranked["target"] = _Objective(place, -1.0 if figure.higher_is_better else 1.0)
        found[f"history{suffix}"] = _Drawn("plot_optimization_history", options)
        names = sorted(done[0].params) if done else []
        for first in range(0, len(names), SIDE_BY_SIDE):
            number = "" if first == 0 else f"-{1 + first // SIDE_BY_SIDE}"
            some = {"params": names[first : first + SIDE_BY_SIDE]}
            found[f"slices{suffix}{number}"] = _Drawn("plot_slice", options | some)
        if len(done) >= FEWEST and len({t.values[place] for t in done}) > 1:
            found[f"importances{suffix}"] = _Drawn("plot_param_importances", ranked)
        else:
            left_out.append(f"importances{suffix}: needs {FEWEST} completed trials that differ")
    if several:
        found["pareto"] = _Drawn("plot_pareto_front", {"target_names": labels})
    return found, left_out


class _Objective:
    """One objective of a trial, times a sign."""

    def __init__(self, place: int, sign: float = 1.0) -> None:
        self.place, self.sign = place, sign

    def __call__(self, trial: Any) -> float:
        return self.sign * float(trial.values[self.place])


class _Drawn:
    """A function of Optuna's, by name, with its options."""

    def __init__(self, function: str, options: dict[str, Any]) -> None:
        self.function, self.options = function, options

    def __call__(self, module: Any, study: Study) -> Any:
        return getattr(module, self.function)(study, **self.options)


def _write_html(name: str, drawing: Drawing, study: Study, folder: Path) -> str:
    from optuna import visualization
    from plotly.offline import get_plotlyjs

    if not (folder / SCRIPT).is_file():
        write_atomic(folder / SCRIPT, get_plotlyjs())
    page = drawing(visualization, study).to_html(include_plotlyjs=SCRIPT)
    write_atomic(folder / f"{name}.html", page)
    return f"{name}.html"


def _write_png(name: str, drawing: Drawing, study: Study, folder: Path) -> str:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    from optuna.visualization import matplotlib as visualization

    drawing(visualization, study)
    figure, content = pyplot.gcf(), io.BytesIO()
    for axes in figure.axes:  # between powers of ten, labels would lie on one another
        if axes.get_xscale() == "log":
            axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    figure.savefig(content, format="png", dpi=120, bbox_inches="tight")
    pyplot.close("all")
    write_atomic(folder / f"{name}.png", content.getvalue())
    return f"{name}.png"
