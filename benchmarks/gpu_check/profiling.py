"""`engine.profile` on the device: what its steps cost, how well that is known, what they draw."""

from __future__ import annotations

from benchmarks.gpu_check.frame import Budget, Findings, failing_drafter
from benchmarks.gpu_check.subject import Subject
from engine.profile.live import profile_server

ROUNDS, TINY_ROUNDS = 5, 3
SHARE_OF_TIME = 0.8  # of the section's, the rest is for fitting
TOKENS = (1, 8, 64, 256, 1024)


def profile(subject: Subject, budget: Budget) -> Findings:
    """Of the small pair, few points; left with its server, so that controllers can price plans."""
    server = subject.small
    rounds = TINY_ROUNDS if subject.tiny else ROUNDS
    seconds = 0.0 if subject.tiny else SHARE_OF_TIME * budget.left_s
    failures = server.guard.failures
    found = profile_server(server, True, rounds, seconds, seed=0)
    server.profile = found
    table = [["pass", "form", "points", "held out", "error", "p95", "noise", "p95 "]]
    for name, fit in found.fits.items():
        shares = fit.error_median, fit.error_p95, fit.noise_median, fit.noise_p95
        counts = str(fit.points), str(fit.held_out)
        table.append([name, fit.form, *counts, *(f"{share:.1%}" for share in shares)])
    sizes = [n for n in TOKENS if n <= found.most_tokens]
    costs = ", ".join(
        f"{n}: {1e3 * float(found.verify_s(n, found.context_tokens)):.2f} ms" for n in sizes
    )
    stairs = ", ".join(f"{at:g}" for at in found.verify.curve.jumps_at) or "none"
    power = found.power
    watts = f"{min(power.watts):.0f} to {max(power.watts):.0f} W"
    stages = "".join(f", {name} {w:.0f} W" for name, w in power.stages.items())
    left = ""
    if subject.out is not None:
        left = f"; written to {found.save(subject.out / 'gpu-profile.json').name}"
    return Findings(
        f"verification {costs}; its stairs are above {stairs}; power "
        f"{'measured' if power.is_measured else 'modelled'}, {watts}{stages}{left}",
        table,
        failing_drafter(server.guard.failures - failures),
    )
