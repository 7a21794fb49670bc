"""`python -m broker_embedded`: the broker as a process. What it does is in `process`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code."""
    # Starting makes many objects and no garbage: looking for it meanwhile would take a tenth of the start. `process`
    # lets the collector go on when the brokers are ready.
    gc.disable()
    try:
        if not _wants_tls(sys.argv[1:] if arguments is None else arguments):
            _load_asyncio_without_ssl()
        from broker_embedded import process

        return process.main(arguments)
    finally:
        gc.enable()


def _wants_tls(arguments: Sequence[str]) -> bool:
    """Whether `--security-protocol` is SSL or SASL_SSL, before there is time to read the arguments properly."""
    return any(argument.endswith("SSL") for argument in arguments)


def _load_asyncio_without_ssl() -> None:
    """Keeps asyncio from importing TLS, which costs 7 ms and 3 MB and which most listeners do not use. A later import
    of ssl works."""
    if "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # how Python is told that there is no such module
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]


if __name__ == "__main__":
    sys.exit(main())
