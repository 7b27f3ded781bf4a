"""A kernel that is called again and again with arguments of the same types.

Numba looks up the types of all arguments in every call. For a fleet's many arrays that takes longer
than serving one replica, so here they are looked up once, as long as the arguments whose types
could change are the same objects. A type says how many dimensions an array has, and how it lies in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SameTypes:
    """One kernel, compiled for the arguments that it was called with before."""

    def __init__(self, kernel: Any) -> None:
        """`kernel` is what `numba.njit` returned."""
        self._kernel = kernel
        self._held: tuple[Any, ...] = ()
        self._code: Callable[..., Any] | None = None

    def __call__(self, held: tuple[Any, ...], *arguments: Any) -> Any:
        """Call the kernel with `arguments`; of those that are not `held`, types never change.

        What is held must keep its type as long as it is the same object, as tuples of arrays do.
        """
        if self._code is None or not _are_same(held, self._held):
            kernel = self._kernel
            self._code = kernel.compile(tuple(map(kernel.typeof_pyval, arguments)))
            self._held = held
        return self._code(*arguments)


def _are_same(held: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return all(a is b for a, b in zip(held, before, strict=True))
