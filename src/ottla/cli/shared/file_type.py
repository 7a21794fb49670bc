"""The type of arguments and options that name a file. Apart from the other types: most commands need no paths."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

FILE: Final = click.Path(path_type=Path, dir_okay=False)
"""A file, which need not exist."""
