"""`python -m eval.lossless`: prove on the live engine that speculation changes no text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.lossless",
        description="Serve the same prompts live under every controller and by ordinary decoding: "
        "the texts must be the same under keyed sampling, and the first tokens must follow the "
        "target's own law. Says what a lossy setting gave up. Exit 1: somebody changed the text "
        "who owns to no margin, or the control was not caught.",
    )
    add = made.add_argument
    add("--policy", nargs="+", help="controllers (default: chain(4) eagle3(3,4,8) adaserve "
        "slack-priced)")  # fmt: skip
    add("--model", help="target: a registered name or a folder (default: smollm2-135m-instruct)")
    add("--drafter", choices=("eagle3", "model", "prompt-lookup"), help="(default: eagle3)")
    add("--draft-head", type=Path, help="EAGLE-3 checkpoint folder; none: the model's own")
    add("--draft-model", help="for the drafter model: a smaller decoder")
    add("--dtype", help="auto, float32, bfloat16 or float64 (default: float32)")
    add("--device", choices=("auto", "cpu", "cuda"), help="where the networks compute")
    add("--prompts", type=int, help="texts, greedy and sampled each (default: 16)")
    add("--tokens", type=int, help="of each text (default: 48)")
    add("--draws", type=int, help="beginnings drawn for the law (default: 600)")
    add("--choices", type=int, help="tokens that the law chooses among (default: 3)")
    add("--beginning", type=int, help="tokens of a beginning (default: 4)")
    add("--seed", type=int, help="of the draws (default: 0)")
    add("--out", type=Path, help="folder for lossless.json and lossless.parquet; none: nowhere")
    return made


def main(argv: Sequence[str]) -> int:
    """Run, print, write; 0 when all holds, 1 when not, 2 for bad input."""
    given = {k: v for k, v in vars(parser().parse_args(argv)).items() if v is not None}
    out: Path | None = given.pop("out", None)
    try:
        return run(given, out, argv)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130


def run(given: dict[str, object], out: Path | None, argv: Sequence[str]) -> int:
    """The proof of what the options name. Raises UserError."""
    from eval.lossless import telling
    from eval.lossless.course import proved
    from eval.lossless.scope import Scope, server_of
    from eval.parts import typed, write_part

    if "policy" in given:
        given["policy"] = tuple(given["policy"])  # type: ignore[arg-type]
    scope = Scope(**given)  # type: ignore[arg-type]
    scope.check()

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    with server_of(scope) as server:
        print(server.describe(), flush=True)
        report = proved(scope, server, say)
    print("\n".join(telling.told(report)), flush=True)
    if out is not None:
        command = typed("-m eval.lossless", argv)
        write_part(
            out, "lossless", telling.rows(report), telling.summary(report), [scope.seed], command
        )
        print(f"results     {out / 'lossless.json'}")
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
