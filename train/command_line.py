"""What every command shares: one schema for flags and file, errors on one line, exit codes.

0 is done (also after a clean Ctrl-C), 1 a bug of ours, 2 something that the user can mend, 130 a
second Ctrl-C. Light on imports: `--help` must answer in under half a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import io
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import UserError

Schema = TypeVar("Schema")
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
RUNS = Path("runs")


class CrashError(Exception):
    """A bug of ours whose traceback was written to `report`."""

    def __init__(self, report: Path) -> None:
        super().__init__(str(report))
        self.report = report


def parse(
    schema: type[Schema], argv: Sequence[str], prog: str, default: Schema | None = None
) -> Schema:
    """Arguments as a frozen dataclass; groups of nested dataclasses, flags without their names.

    Raises UserError with one sentence where tyro would draw a box. `--help` prints and exits.
    """
    import tyro

    drawn = io.StringIO()
    try:
        with contextlib.redirect_stderr(drawn):
            return tyro.cli(
                schema,
                prog=prog,
                args=list(argv),
                config=(tyro.conf.OmitArgPrefixes,),
                default=tyro.MISSING_NONPROP if default is None else default,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(
            f"{_sentence(drawn.getvalue())} ({prog} --help shows all options)"
        ) from None


def parse_with_files(
    schema: type[Schema], argv: Sequence[str], prog: str, files: Callable[[Schema], list[Path]]
) -> Schema:
    """As `parse`, with the TOML files that the command line names giving the defaults.

    `files` reads their paths from the first parse; a later file overrides an earlier one, and the
    command line overrides all.
    """
    default: Schema | None = None
    for path in files(parse(schema, argv, prog)):
        try:
            default = parse(schema, file_arguments(schema, path), prog, default)
        except UserError as error:
            raise UserError(f"{path}: {error}" if str(path) not in str(error) else error) from None
    return parse(schema, argv, prog, default)


def file_arguments(schema: type[Any], path: Path) -> list[str]:
    """A flat TOML file, keys named as the flags, as a command line."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); expected a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    known = list(leaves(schema()))
    arguments: list[str] = []
    for key, value in table.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise UserError(f"{path}: no setting is called {key!r}; did you mean {close[0]!r}?")
        values = value if isinstance(value, list) else [value]
        if any(isinstance(v, dict) for v in values):
            raise UserError(f"{path}: {key} is a table; expected {key} = value")
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            arguments += [f"--{flag}", *map(str, values)]
    return arguments


def leaves(config: Any) -> dict[str, Any]:
    """Settings by name, groups dissolved; names are unique over all groups."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found |= leaves(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def as_toml(config: Any) -> str:
    """The resolved settings as a flat TOML file that `--config` reads back; None is left out."""
    lines = [f"{key} = {_toml_value(v)}" for key, v in leaves(config).items() if v is not None]
    return "\n".join(lines) + "\n"


def nearest(given: str, known: Sequence[str]) -> str:
    """'did you mean x?', or the known names when none is near."""
    close = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def run_command(main: Callable[[], None]) -> None:
    """Run a command and turn its end into an exit code and at most one line."""
    try:
        main()
    except UserError as error:
        _leave(" ".join(str(error).split()), 2)
    except CrashError as crash:
        _leave(_ask_for(crash.report), 1)
    except KeyboardInterrupt:
        _leave("stopped", 130)
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in FULL_DISK:
            traceback.print_exc()
            _leave(_ask_for(write_crash(error, RUNS)), 1)
        _leave(disk_full(error), 2)
    except Exception as error:
        traceback.print_exc()
        _leave(_ask_for(write_crash(error, RUNS)), 1)


@contextlib.contextmanager
def crash_reports(folder: Path) -> Any:
    """Within: a bug leaves `folder`/crash.txt and a traceback; errors for the user pass through."""
    try:
        yield
    except (UserError, CrashError):
        raise
    except OSError as error:
        if error.errno in FULL_DISK:
            raise UserError(disk_full(error)) from error
        traceback.print_exc()
        raise CrashError(write_crash(error, folder)) from error
    except Exception as error:
        traceback.print_exc()
        raise CrashError(write_crash(error, folder)) from error


def disk_full(error: OSError) -> str:
    """One sentence for a write that the disk refused."""
    where = f" while writing {error.filename}" if error.filename else ""
    return (
        f"the disk is full{where}; what was saved before is intact: free some space, "
        "then repeat the command (train.py --resume RUN goes on from the last checkpoint)"
    )


def write_crash(error: BaseException, folder: Path) -> Path:
    """Where it broke, as files and lines. Messages stay out: they may quote a prompt."""
    frames = traceback.format_tb(error.__traceback__)
    chain = error.__cause__ or error.__context__
    while chain is not None:
        frames += [
            f"\ncaused by {type(chain).__name__}\n",
            *traceback.format_tb(chain.__traceback__),
        ]
        chain = chain.__cause__ or chain.__context__
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "crash.txt"
    command = Path(sys.argv[0]).name
    path.write_text(
        f"{command}: {type(error).__name__} (Python {sys.version.split()[0]})\n" + "".join(frames),
        encoding="utf-8",
    )
    return path


def _ask_for(report: Path) -> str:
    return f"this is a bug in DraftGym: please send {report} (it holds no prompt text) in an issue"


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)


def _sentence(box: str) -> str:
    """tyro's error box as one sentence."""
    lines = [re.sub(r"[╭╮╰╯│]", "", line).strip() for line in box.splitlines()]
    kept = [line for line in lines if line]
    body = kept[1:] if len(kept) > 1 else kept  # the first line is the box's title
    rules = [i for i, line in enumerate(body) if set(line) <= {"─"}]
    sentence = " ".join(body[: rules[0]] if rules else body)
    near = re.search(r"Perhaps you meant.*?(--[\w-]+)", " ".join(body))
    return f"{sentence}; did you mean {near[1]}?" if near else sentence


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
