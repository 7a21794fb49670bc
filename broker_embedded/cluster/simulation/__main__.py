"""`python -m broker_embedded.cluster.simulation --seeds 20 --first 1 --brokers 3 --minutes 2`

Runs one simulation per seed. A seed that fails is printed with its transcript, and is the same run whenever it is run
again; the exit status is then 1. `--share-groups` makes members of share groups most of the clients, and a simulated
time of six seconds the default. `--figures` measures how much simulated time passes per second instead.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from broker_embedded.cluster.simulation import Simulation, SimulationOutcome, draw
from broker_embedded.cluster.simulation.scenario import busy, draw_share_groups, idle

TAIL = 120
"""Lines of a failing transcript that are printed; all of them go to the file that is named."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m broker_embedded.cluster.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many simulations")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--minutes", type=float, help="simulated minutes with faults (2, or 0.1 with --share-groups)")
    parser.add_argument("--share-groups", action="store_true", help="mostly members of share groups")
    parser.add_argument("--transcript", type=Path, help="write the transcript of the last run to this file")
    parser.add_argument("--figures", action="store_true", help="measure an idle and a busy cluster")
    options = parser.parse_args(arguments)
    if options.figures:
        return _figures(options.brokers)
    draws = draw_share_groups if options.share_groups else draw
    minutes = options.minutes if options.minutes is not None else (0.1 if options.share_groups else 2.0)
    failed: list[int] = []
    outcomes: list[SimulationOutcome] = []
    for seed in range(options.first, options.first + options.seeds):
        outcome = Simulation(draws(seed, brokers=options.brokers, minutes=minutes)).run()
        outcomes.append(outcome)
        _say(_line(outcome))
        if options.transcript is not None:
            options.transcript.write_text("\n".join(outcome.lines) + "\n", encoding="utf-8")
        if outcome.failure is not None:
            failed.append(seed)
            _say("\n".join(outcome.lines[-TAIL:]))
            _say(
                f"again: python -m broker_embedded.cluster.simulation --seeds 1 --first {seed} "
                f"--brokers {options.brokers} --minutes {minutes:g} --transcript seed-{seed}.txt"
                f"{' --share-groups' if options.share_groups else ''}"
            )
    simulated_s, wall_s = sum(each.simulated_s for each in outcomes), sum(each.wall_s for each in outcomes)
    _say(
        f"{len(outcomes)} seeds, {len(failed)} failed{': ' + ', '.join(map(str, failed)) if failed else ''}; "
        f"{simulated_s / 3600:.2f} simulated hours in {wall_s:.1f} s, "
        f"{simulated_s / 3600 / max(wall_s, 1e-9):.3f} hours per second"
    )
    return 1 if failed else 0


def _figures(brokers: int) -> int:
    """Return simulated time per second: of the clock on the wall, and of the processor, which others may be using
    too."""
    for name, scenario in (("idle", idle(brokers=brokers)), ("busy", busy(brokers=brokers))):
        processor_s = time.process_time()
        outcome = Simulation(scenario).run()
        processor_s = time.process_time() - processor_s
        _say(
            f"{name} cluster of {brokers}: {outcome.hours_per_second:.3f} simulated hours per second, "
            f"{outcome.simulated_s / 3600 / processor_s:.3f} per second of the processor "
            f"({outcome.simulated_s:.0f} s simulated, {outcome.acknowledged} records acknowledged)"
        )
        if outcome.failure is not None:
            _say(outcome.failure)
            return 1
    return 0


def _line(outcome: SimulationOutcome) -> str:
    state = "ok    " if outcome.failure is None else "FAILED"
    return (
        f"{state} {outcome.scenario.describe()}; {outcome.faults} faults, {outcome.acknowledged} acknowledged, "
        f"{outcome.consumed} consumed, {outcome.simulated_s:.0f} s in {outcome.wall_s:.1f} s, {outcome.digest}"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
