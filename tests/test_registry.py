"""Specs with nested wrappers, controllers of other packages, and the table of all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.protocol import Controller
from policies import registry
from policies.grammar import first_part, read_call
from policies.held import Held
from policies.listing import as_text, own_rows, rows
from policies.shielded import Shielded
from policies.tiered import Tiered

ROOT = Path(__file__).resolve().parents[1]
MODULE = '''
from engine.protocol import Controller, uniform_plan

class Mine(Controller):
    """One deep chain.

    Not shown."""
    name = "mine"
    lossless = False
    needs_divergence = True
    def __init__(self, depth):
        self.depth = depth
    def plan(self, view):
        return uniform_plan(view.limits, self.depth, 1, self.depth)

Nothing = 3
'''


def install(folder: Path, package: str, *points: str) -> None:
    """Lay a package out as an installer would, with entry points of the group."""
    (folder / f"{package}.py").write_text(MODULE)
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = "\n".join(points)
    (info / "entry_points.txt").write_text(f"[draftgym.controllers]\n{lines}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# -- grammar -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "first", "rest"),
    [
        ("chain", "chain", None),
        (" tiered : chain(2) ", "tiered", "chain(2)"),
        ("held(4):adaserve", "held(4)", "adaserve"),
        ("shadow('a.b:C(2)'):held(4):x", "shadow('a.b:C(2)')", "held(4):x"),
        ("a.b:C(gain=2)", "a.b", "C(gain=2)"),
        ("tiered:", "tiered", ""),
        ("held(4:x", "held(4:x", None),
    ],
)
def test_the_first_colon_outside_brackets_parts(spec: str, first: str, rest: str | None) -> None:
    assert first_part(spec) == (first, rest)


def test_calls_hold_literals() -> None:
    call = read_call("x(1, 'two', three=(3, None))")
    assert call == ("x", [1, "two"], {"three": (3, None)})


def test_wrappers_take_parameters_and_nest() -> None:
    controller = registry.make("shielded(dwell=5):held(4):tiered:adaserve", budget=1.3)
    assert controller.name == "shielded(dwell=5):held(4):tiered:adaserve(budget=1.3)"
    assert isinstance(controller, Shielded) and controller.dwell == 5
    held = controller.controller
    assert isinstance(held, Held) and held.n == 4 and isinstance(held.controller, Tiered)
    assert controller.needs_profile and not controller.needs_divergence
    assert registry.make(controller.name).name == controller.name


def test_a_class_by_path_inside_wrappers() -> None:
    controller = registry.make("held(2):tests.test_policies:Probe(gain=2.5)")
    assert isinstance(controller, Held) and controller.name == "held(2):probe"
    assert controller.controller.gain == 2.5  # type: ignore[attr-defined]


def test_an_exported_folder_is_found_behind_wrappers(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert registry.exported_folder(f"shielded(dwell=3):held(4):{tmp_path}") == tmp_path
    assert registry.exported_folder("held(4):") is None


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("held:chain", "missing a required argument: 'n'"),
        ("held(0):chain", "held: n is 0; expected a whole number of iterations"),
        ("held(4)", "wraps another controller; expected as in held(4):eagle3"),
        ("held(four):chain", "cannot be read"),
        ("held(4, 5):chain", "parameters do not fit"),
        ("held(4):chian", "did you mean chain?"),
        ("shielded(dwel=3):chain", "parameters do not fit"),
        ("shielded(fallbacks=(3,)):chain", "expected names of controllers"),
        ("shielded(fallbacks=('nobody',)):chain", "no controller of that name"),
        ("shielded(late_s=0):chain", "late_s is 0"),
        ("shielded(margin=1.5):chain", "margin is 1.5"),
        ("shadow:chain", "missing a required argument: 'other'"),
        ("shadow('chian'):chain", "did you mean chain?"),
    ],
)
def test_bad_wrappers(spec: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        registry.make(spec)
    assert says in str(caught.value) and "\n" not in str(caught.value)


# -- other packages ------------------------------------------------------------------------------


def test_a_package_brings_a_controller_along(site: Path) -> None:
    install(site, "others_brought", "mine = others_brought:Mine")
    controller = registry.make("held(3):mine(2)")
    assert controller.name == "held(3):mine" and not controller.lossless
    row = next(row for row in rows() if row.name == "mine")
    assert row == ("mine", "divergence", "no", "One deep chain.", "others_brought 1.2")
    with pytest.raises(UserError, match="did you mean mine"):
        registry.make("mime")


def test_it_is_not_imported_before_it_is_asked_for(site: Path) -> None:
    install(site, "others_waiting", "waiting = others_waiting:Mine")
    assert "waiting" in registry.offered() and "others_waiting" not in sys.modules


@pytest.mark.parametrize("name", ["chain", "held"])
def test_a_name_of_ours_is_refused(site: Path, name: str) -> None:
    install(site, "others_clash", f"{name} = others_clash:Mine")
    for ask in (rows, lambda: registry.make("unheard-of")):
        with pytest.raises(UserError) as caught:
            ask()
        told = f"others_clash 1.2 offers a controller named {name}, which DraftGym has itself"
        assert told in str(caught.value)
    assert isinstance(registry.make("chain"), Controller)  # ours is ours all the same


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    install(site, "others_one", "same = others_one:Mine")
    install(site, "others_two", "same = others_two:Mine")
    with pytest.raises(UserError, match=r"others_one 1\.2 and others_two 1\.2 both offer"):
        rows()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("others_broken:Gone", "no controller class 'Gone'"),
        ("others_broken:Nothing", "no controller class 'Nothing'"),
        ("not_there:Mine", "no module 'not_there'"),
    ],
)
def test_one_that_cannot_be_loaded_says_so_and_hides_nobody(
    site: Path, target: str, says: str
) -> None:
    install(site, "others_broken", f"broken = {target}")
    table = rows()
    assert says in next(row for row in table if row.name == "broken").summary
    assert len(table) == len(own_rows()) + 1
    with pytest.raises(UserError, match=says):
        registry.make("broken")


def test_a_target_that_is_no_class_is_refused(site: Path) -> None:
    install(site, "others_bare", "bare = others_bare")
    with pytest.raises(UserError, match="expected module:Class"):
        registry.offered()


# -- the table -----------------------------------------------------------------------------------


def test_every_controller_and_wrapper_stands_in_the_table_with_a_source() -> None:
    table = own_rows()
    assert [row.name for row in table] == [
        *sorted(registry.ENTRIES),
        *(f"{name}:…" for name in sorted(registry.WRAPPERS)),
    ]
    assert all(all(row) for row in table), [row.name for row in table if not all(row)]


def test_a_class_says_what_one_with_its_defaults_does() -> None:
    for name, entry in registry.ENTRIES.items():
        kind = registry.class_of(entry)
        try:
            made = kind()
        except TypeError:  # has parameters without a default
            continue
        for what in ("lossless", "needs_profile", "needs_divergence"):
            assert getattr(kind, what) == getattr(made, what), (name, what)


@pytest.mark.parametrize(
    ("name", "needs", "lossless"),
    [
        ("adaserve", "profile", "yes"),
        ("dsde", "divergence", "yes"),
        ("chain", "nothing", "yes"),
        ("adaptivespec-margin", "nothing", "no"),
        ("held:…", "as wrapped", "as wrapped"),
    ],
)
def test_the_table_tells_needs_and_losslessness(name: str, needs: str, lossless: str) -> None:
    row = next(row for row in own_rows() if row.name == name)
    assert (row.needs, row.lossless) == (needs, lossless)


def test_columns_stand_below_their_heads() -> None:
    head, *lines = as_text(own_rows()).splitlines()
    at = head.index("source")
    for line, row in zip(lines, own_rows(), strict=True):
        assert line.startswith(row.name) and line[at:].startswith(row.source)


def test_the_command_prints_it() -> None:
    done = subprocess.run(
        [sys.executable, "evaluate.py", "--list"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == as_text(rows()).strip()
