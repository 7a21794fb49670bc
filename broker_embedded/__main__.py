"""`python -m broker_embedded`: the broker as a process. What it does is in `process`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code."""
    # Loading makes many objects and no garbage: looking for it meanwhile would take a tenth of the start.
    gc.disable()
    try:
        from broker_embedded import process
    finally:
        gc.enable()
    return process.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
