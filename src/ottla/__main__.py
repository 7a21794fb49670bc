"""The program: `ottla`, which is also `python -m ottla`."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command that the arguments name."""
    # To load makes many objects and no garbage: to look for it meanwhile takes a twentieth of `ottla --help`.
    # `ottla.cli` lets the collector go on when it has loaded a command.
    gc.disable()
    from ottla.cli import main as command

    try:
        command()
    finally:
        if not gc.isenabled():  # all was help: at its end the interpreter would look through it, several times
            gc.freeze()


if __name__ == "__main__":
    main()
