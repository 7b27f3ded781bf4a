"""Kernels without a way in from Python (`engine.kernels.inner`) are called by kernels alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [p for p in ROOT.glob("*/**/*.py") if not p.relative_to(ROOT).parts[0].startswith(".")]
KERNEL = "from numba import njit\n@njit(**INNER)\ndef f(x): return x\n"


def decorators(node: ast.AST) -> str:
    """How a function is decorated; nothing for other things."""
    found = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return " ".join(map(ast.unparse, found))


def inner(tree: ast.Module) -> set[str]:
    """The kernels of a file that have no way in."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and "**INNER" in decorators(node)
    }


def uses(node: ast.AST, names: set[str]) -> Iterator[int]:
    """Lines that name any of them outside kernels."""
    for child in ast.iter_child_nodes(node):
        if "njit(" in decorators(child):
            continue
        if isinstance(child, ast.Name) and child.id in names:
            yield child.lineno
        if isinstance(child, ast.Attribute) and ast.unparse(child) in names:
            yield child.lineno
        yield from uses(child, names)


def of_modules(node: ast.AST, trees: dict[str, ast.Module]) -> set[str]:
    """Inner kernels as `module.kernel`, of the modules that the statement imports whole."""
    if isinstance(node, ast.Import):
        modules = {a.asname or a.name: a.name for a in node.names}
    elif isinstance(node, ast.ImportFrom):
        modules = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    else:
        return set()
    return {
        f"{here}.{kernel}"
        for here, module in modules.items()
        if module in trees
        for kernel in inner(trees[module])
    }


def calls_from_python(trees: dict[str, ast.Module]) -> list[str]:
    """`file:line` of every one; files by the module's name."""
    found = []
    for module, tree in trees.items():
        names = inner(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "") in trees:
                there = inner(trees[node.module or ""])
                names |= {a.asname or a.name for a in node.names if a.name in there}
            names |= of_modules(node, trees)
        found += [f"{module}:{line}" for line in uses(tree, names)]
    return found


def test_no_file_calls_an_inner_kernel_from_python() -> None:
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in FILES
    }
    assert sum(len(inner(tree)) for tree in trees.values()) > 20
    assert calls_from_python(trees) == []


@pytest.mark.parametrize(
    "caller",
    [
        "from kernels import f\nf(1)\n",
        "from kernels import f as g\ndef h(): return [g(1)]\n",
        "import kernels\nkernels.f(1)\n",
        "import kernels as k\nk.f(1)\n",
        "from kernels import f\ndef h(call=f): return call(1)\n",
    ],
)
def test_such_a_call_is_found(caller: str) -> None:
    trees = {"kernels": ast.parse(KERNEL), "caller": ast.parse(caller)}
    assert [found.split(":")[0] for found in calls_from_python(trees)] == ["caller"]


def test_a_call_by_a_kernel_is_none() -> None:
    caller = "from kernels import f\n@njit(cache=True)\ndef h(x): return f(x)\n"
    trees = {"kernels": ast.parse(KERNEL), "caller": ast.parse(caller)}
    assert calls_from_python(trees) == []
