"""CUDA graphs in plain torch: what a pass launches is written down once and then launched again.

It stands in for a card as `models.flashinfer_interpreter` does for the package. As on a card, no
Python of a network runs in a replay: operators run again on the memory that they were recorded
with, so whatever a pass takes from elsewhere (an array of the caller's, a number of the last plan)
stays what it was at the capture and gives a wrong result. As there, work that waits for a result
cannot be captured, a capture computes nothing, and a replay may overwrite other graphs' results.

Passes that leave torch (float32 on a CPU goes through Numba) cannot be written down: the networks
must be in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from models import flashinfer_interpreter
from models.flashinfer_interpreter import PagedCache
from models.pass_graphs import Captured, Outputs

aten = torch.ops.aten
WAITS = {
    aten.item.default,
    aten._local_scalar_dense.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


class Launch(NamedTuple):
    """One operator with its arguments, and the memory that its results went to."""

    run: Callable[[], Any]
    reads: list[Tensor]
    results: list[Tensor]


class Tape(TorchDispatchMode):
    """Writes down what is launched while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self.outputs: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator of torch, and write it down; RuntimeError for one that waits."""
        kwargs = kwargs or {}
        if func in WAITS or (func in INDEXING and _by_mask(args[1])):
            raise RuntimeError(f"{func} waits for the device, which a captured pass cannot")
        return self._launch(lambda: func(*args, **kwargs), _tensors((args, kwargs)))

    def kernel(self, run: Callable[[], Any], reads: list[Tensor]) -> Any:
        """Run something else that is one launch on a card, and write it down."""
        with _disable_current_modes():
            return self._launch(run, reads)

    def _launch(self, run: Callable[[], Any], reads: list[Tensor]) -> Any:
        results = run()
        self.launches.append(Launch(run, reads, _tensors(results)))
        return results

    def replay(self) -> None:
        """Launch everything again; results go to where they went."""
        for launch in self.launches:
            for then, now in zip(launch.results, _tensors(launch.run()), strict=True):
                if then.data_ptr() != now.data_ptr():  # neither a view nor in place
                    then.copy_(now)

    def sources(self) -> list[Tensor]:
        """Tensors whose memory the pass reads or writes and did not make itself."""
        made: set[int] = set()
        sources: dict[int, Tensor] = {}
        for launch in self.launches:
            given = {_memory(tensor): tensor for tensor in launch.reads}
            sources.update({at: tensor for at, tensor in given.items() if at not in made})
            made |= {_memory(tensor) for tensor in launch.results} - sources.keys()
        return list(sources.values())

    def spoil(self) -> None:
        """Make the outputs unusable."""
        for output in self.outputs:
            output.fill_(float("nan"))

    def n_bytes(self) -> int:
        """Bytes of what the pass made itself."""
        memory = {_memory(t): t for launch in self.launches for t in launch.results}
        given = {_memory(tensor) for tensor in self.sources()}
        return sum(t.untyped_storage().nbytes() for at, t in memory.items() if at not in given)


class TapeCapturer:
    """Captures passes on a CPU. Networks that take part have its operators, and no others."""

    def __init__(self) -> None:
        self.tapes: WeakSet[Tape] = WeakSet()
        self._recording: Tape | None = None
        launch = self._kernel

        class Wrapper(flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper):
            """The interpreter's, whose runs are one launch."""

            def run(
                self, q: Tensor, paged_kv_cache: PagedCache, *, out: Tensor | None = None
            ) -> Tensor:
                """As the interpreter's."""
                run = super().run
                mixed: Tensor = launch(lambda: run(q, paged_kv_cache, out=out), [q])
                return mixed

        self.BatchPrefillWithPagedKVCacheWrapper = Wrapper

    def append_paged_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """As the interpreter's, one launch."""
        append = flashinfer_interpreter.append_paged_kv_cache
        self._kernel(lambda: append(*args, **kwargs), _tensors(args))

    def capture(self, work: Callable[[], Outputs]) -> Captured:
        """Run the work once, then write it down."""
        work()
        tape = self._recording = Tape()
        try:
            with tape:
                outputs = work()
        finally:
            self._recording = None
        tape.outputs = [output for output in outputs if output is not None]
        tape.spoil()
        self.tapes.add(tape)

        def replay() -> None:
            for other in self.tapes:
                other.spoil()
            tape.replay()

        return Captured(replay, outputs, tape.n_bytes())

    def _kernel(self, run: Callable[[], Any], reads: list[Tensor]) -> Any:
        return run() if self._recording is None else self._recording.kernel(run, reads)


def _by_mask(index: Any) -> bool:
    """Whether an index picks by truth, so that its length has to be waited for."""
    return any(tensor.dtype == torch.bool for tensor in _tensors(index))


def _tensors(tree: Any) -> list[Tensor]:
    """Tensors among the arguments or results of an operator."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return []
    return [tensor for branch in tree for tensor in _tensors(branch)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
