"""`python -m torture_kit --seconds 600 --seed 1`: rounds with rising seeds, in each shell, until the time is over.

Ends at the first round that breaks a promise, with exit code 1, its transcript, and the command that runs it again.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from torture_kit.plan import Plan
from torture_kit.round import run_round


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("--seconds", type=float, default=300, help="begin no round after so many seconds")
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed; each round takes the next")
    parser.add_argument(
        "--shells", default="threads,asyncio,columns,mixed", help="which shells take turns; mixed: all in each group"
    )
    parser.add_argument("--records", type=int, default=4_000, help="inputs of a round")
    parser.add_argument("--faults", type=int, default=18, help="faults of a round")
    parser.add_argument("--retry-topics", action="store_true", help="what fails goes through retry topics")
    parser.add_argument("--wishes", action="store_true", help="inputs are delayed, expire, and are urgent")
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    seed = options.seed
    rounds = 0
    while rounds == 0 or time.monotonic() < until_s:
        for shell in options.shells.split(","):
            plan = Plan.draw(
                seed=seed,
                shell=shell,
                records=options.records,
                faults=options.faults,
                has_retry_topics=options.retry_topics,
                has_wishes=options.wishes,
            )
            directory = Path(tempfile.mkdtemp(prefix="torture-"))
            verdict = run_round(plan, directory)
            if not verdict.is_kept:
                print(verdict, f"evidence: {directory}", sep="\n", flush=True)
                return 1
            shutil.rmtree(directory)
            print(verdict.account(), flush=True)
            rounds += 1
        seed += 1
    print(f"{rounds} rounds, every promise kept")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
