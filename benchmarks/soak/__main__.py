"""`tools/run soak --minutes n`: exit code 0 only if memory and descriptors were flat and nothing was lost."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from results import Results

from soak.run import Options, Verdict, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=300, help="flights a second")
    parser.add_argument("--flights", type=int, default=20_000, help="how many different ones")
    parser.add_argument("--every", type=float, default=0, help="seconds between samples; 0: as the length asks")
    parser.add_argument("--fault-every", type=float, default=12, help="seconds between faults, on average")
    parser.add_argument("--results", type=Path, help="the folder for soak.jsonl")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results("soak", options.results)
    directory = Path(tempfile.mkdtemp(prefix="ottla-soak-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, {options.rate:g} flights/s; logs are in {directory}")
    verdict = run(
        Options(
            seconds=options.minutes * 60,
            seed=options.seed,
            rate=options.rate,
            flights=options.flights,
            every_s=options.every or min(15.0, max(2.0, options.minutes)),
            fault_every_s=options.fault_every,
            directory=directory,
        )
    )
    tell(verdict)
    write(verdict, results, minutes=options.minutes)
    if not verdict.is_kept:
        print(f"again: tools/run soak --minutes {options.minutes:g} --seed {options.seed}; the logs are in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def tell(verdict: Verdict) -> None:
    print()
    for growth in verdict.growths:
        print(growth)
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(verdict.faults.items()))
    print(f"faults: {verdict.faults.total()} ({faults})")
    if verdict.account is not None:
        account = verdict.account
        print(
            f"sent {account.sent:,} = handled {account.handled:,} + dead {account.dead:,}; "
            f"duplicates (at least once) {account.duplicates:,}; violations {len(account.violations)}"
        )
        for violation in account.violations:
            print(f"  {violation}")
    for problem in verdict.problems:
        print(f"problem: {problem}")
    print("flat, and nothing lost" if verdict.is_kept else "NOT KEPT")


def write(verdict: Verdict, results: Results, *, minutes: float) -> None:
    for growth in verdict.growths:
        results.add(growth.what, "ottla", [growth.typical], growth.unit)
        results.add(f"{growth.what}, growth in {growth.seconds:.0f} s", "ottla", [growth.growth], growth.unit)
    results.add("duration", "ottla", [minutes], "minutes")
    results.add("faults", "ottla", [verdict.faults.total()], "faults")
    results.add("kept", "ottla", [float(verdict.is_kept)], "(1: flat, and nothing lost)")
    if verdict.account is not None:
        results.add("sent", "ottla", [verdict.account.sent], "events")
        results.add("duplicates", "ottla", [verdict.account.duplicates], "events")
        results.add("lost or wrong", "ottla", [len(verdict.account.violations)], "kinds of violation")
    results.close()


if __name__ == "__main__":
    sys.exit(main())
