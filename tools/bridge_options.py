"""Write docs/reference/bridge-options.md: the options of `ottla bridge` and the keys of its mapping file.

    python tools/bridge_options.py

Options come from the commands, keys from what reads the file. A test fails when the page is behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from ottla.bridge.mapping.mapping_file import KEYS, KEYS_OF_RULE
from ottla.cli.services.bridge import bridge

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "bridge-options.md"

HEAD: Final = """\
# Options of a bridge

<!-- Written by tools/bridge_options.py from the commands: change their help texts. -->

[Take messages from MQTT and AMQP](../how-to/bridge.md) says how they go together.
"""
MAPPING: Final = """
## The mapping file

TOML, read with `--mapping FILE`, and again at SIGHUP.

"""


def options_of(command: click.Command) -> Iterator[tuple[str, str, str]]:
    """Yield (option, default, meaning) in the order of `--help`."""
    ctx = click.Context(command)
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        found = option.get_help_record(ctx)
        assert found is not None
        name, words = found
        default = re.search(r"\[(?:.*; )?default: ([^;\]]+)[^\]]*\]", words)
        meaning = re.sub(r"\s*\[[^\]]*\]$", "", words)
        yield (
            " ".join(name.replace("INTEGER RANGE", "N").split()),
            "" if default is None else default.group(1),
            " ".join(meaning.split()),
        )


def table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, default, meaning in rows:
        shown = "" if not default else f"`{default}`"
        lines.append(f"| `{name.replace('|', chr(92) + '|')}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    for name in ("mqtt", "amqp"):
        command = bridge.commands[name]
        parts.append(f"\n## ottla bridge {name}\n\n{table(options_of(command))}")
    parts.append(MAPPING)
    lines = ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {meaning} |" for key, meaning in KEYS.items()]
    lines += [f"| `{key}` of a `[[map]]` | {meaning} |" for key, meaning in KEYS_OF_RULE.items()]
    return "".join(parts) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
