"""How a fleet's kernels are compiled: most with no way in from Python, all without counting.

Numba writes code around every kernel that takes its arguments out of Python's objects, even where
only other kernels call it. For one that is handed a fleet's many arrays this is most of what there
is to compile, and `train.py` waits for it with an empty cache. Called from Python such a kernel
ends the process; a test looks for such calls in the repository's files.

Nor does Numba count who refers to its arrays (`_nrt`, without which a kernel can make no array of
its own): whoever calls it holds them. Numba counts each of a fleet's arrays up and down in nearly
every call, and processors do so atomically, which costs more than serving does.
"""

from __future__ import annotations

from typing import Any, Final

BORROWED: Final[dict[str, Any]] = {"cache": True, "_nrt": False}
"""Options of a kernel that borrows its arrays and may be called from Python."""
INNER: Final[dict[str, Any]] = {**BORROWED, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of `numba.njit`: `@njit(**INNER)`."""
