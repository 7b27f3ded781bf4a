"""The shape of the house: floors, light imports, packages and file sizes.

What stands in the rooms is tested by topic elsewhere. Imports are tried in fresh processes, since
this one has already imported much of what must stay out.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("train", "eval", "envs", "policies", "engine", "models")  # from the top down
MAX_LINES = 400
RUNTIME = ("policies.learned", "policies.features", "policies.actions", "engine.protocol")

LINT = "import sys, importlinter.cli as cli; sys.exit(cli.lint_imports(no_cache=True))"


def run_python(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter whose first import path is `folder`."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def packages_loaded_by(module: str) -> set[str]:
    """Top-level packages, standard library aside, that `import module` brings in."""
    done = run_python(
        "import sys; before = set(sys.modules)\n"
        f"import {module}\n"
        "names = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(names - sys.stdlib_module_names))"
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def write_tree(folder: Path, imports: dict[str, str]) -> None:
    """Write the project's contracts and floors of stub modules that hold `imports` by module."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for floor in FLOORS:
        (folder / floor).mkdir()
        (folder / floor / "__init__.py").touch()
    for module in {*RUNTIME, *imports}:
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.write_text(imports.get(module, "") + "\n", encoding="utf-8")


def test_contracts_hold() -> None:
    done = run_python(LINT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contracts_pass_a_clean_tree(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.ppo": "import stable_baselines3\nimport envs"})
    done = run_python(LINT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("engine.loop", "from policies import learned", "lower floor"),
        ("models.decoder", "import engine", "lower floor"),
        ("policies.tree", "import torch", "no torch"),
        ("engine.protocol", "import gymnasium", "no torch"),
        ("envs.serve", "import stable_baselines3", "Only train/"),
        ("eval.runner", "import sb3_contrib", "Only train/"),
        ("policies.learned", "def f():\n    import numba", "NumPy and safetensors only"),
        ("policies.features", "import scipy.stats", "NumPy and safetensors only"),
    ],
)
def test_contracts_catch(module: str, line: str, contract: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {module: line})
    done = run_python(LINT, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"{contract}.* BROKEN", done.stdout), done.stdout


def test_every_package_has_an_init() -> None:
    folders = {
        path.parent
        for top in (*FLOORS, "tests", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
    }
    folders |= {ROOT / top for top in FLOORS}
    missing = sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file())
    assert not missing, f"packages without __init__.py: {missing}"


def test_train_is_the_package_beside_its_script() -> None:
    assert (ROOT / "train.py").is_file(), "train.py, the command, is missing"
    done = run_python("import train; print(train.__file__)")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == ROOT / "train" / "__init__.py"


def test_no_file_is_long() -> None:
    tops = (*FLOORS, "tests", "benchmarks")
    paths = [*ROOT.glob("*.py"), *(p for top in tops for p in (ROOT / top).rglob("*.py"))]
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    long = {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > MAX_LINES}
    assert not long, f"files over {MAX_LINES} lines hold more than one idea: {long}"


@pytest.mark.parametrize("module", RUNTIME)
def test_controller_runtime_loads_numpy_and_safetensors_only(module: str) -> None:
    foreign = packages_loaded_by(module) - {*FLOORS, "numpy", "safetensors"}
    assert not foreign, f"import {module} brought in {sorted(foreign)}"


def test_importing_envs_is_light() -> None:
    loaded = packages_loaded_by("envs")
    heavy = {"torch", "transformers", "stable_baselines3", "sb3_contrib", "numba"}
    assert not loaded & heavy, f"import envs brought in {sorted(loaded & heavy)}"
