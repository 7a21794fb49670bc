"""Write the pictures of the landing page from real runs: what a terminal shows, as SVG.

    python tools/docs_pictures.py [service broker pipeline]

The service and the pipeline are those of the tutorial. Nothing in a picture is typed by hand: commands are run, and
what they print is drawn, without the lines of logs and tracebacks in between.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from follow_page import Follower, blocks_of
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures"
BIN = Path(sys.executable).parent
WIDTH = 96

# rich's own format without the fonts that it loads from elsewhere.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""

Lines = list[tuple[str, str]]
"""Style and text of each line: a command is bold."""


def service(folder: Path) -> Lines:
    """The tutorial up to its dead letters."""
    follower = Follower(folder, BIN)
    shown: Lines = []
    try:
        for block in blocks_of(ROOT / "docs" / "tutorial.md"):
            if "dlq show" in block.text:
                break
            follower.follow(block)
            if "ottla run" in block.text:
                # The page's lines were compared with what it printed; its log is too long for a picture.
                billed = [("green", line) for line in block.text.splitlines() if line.startswith("order ")]
                shown += [("bold", "$ ottla run service:app"), *billed]
        listing = "ottla dlq list orders.dead-letters --format table"
        shown += [("", ""), *_command(listing, folder, follower.environment)]
    finally:
        follower.close()
    return shown


def broker(folder: Path) -> Lines:
    """Three brokers, one of them killed."""
    command = [
        str(BIN / "ottla"),
        "broker",
        "start",
        "--brokers",
        "3",
        "--control-port",
        "0",
        "--topics",
        "payments:2:3",
    ]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
    assert started.stdout is not None
    try:
        ready, control = started.stdout.readline().rstrip(), started.stdout.readline().rstrip()
        environment = {**os.environ, "OTTLA_BROKER_CONTROL": control.removeprefix("control="), "NO_COLOR": "1"}
        shown: Lines = [("bold", "$ ottla broker start --brokers 3 --topics payments:2:3"), ("green", ready), ("", "")]
        shown += [*_command("ottla broker kill 2", folder, environment), ("", "")]
        for partition, in_sync in ((0, "1,3"), (1, "1,3")):
            wait = f"ottla broker wait --topic payments --partition {partition} --leader any --isr {in_sync}"
            _command(wait, folder, environment)
        return [*shown, *_command("ottla broker status", folder, environment)]
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)


def pipeline(folder: Path) -> Lines:
    """The tutorial's table in Spark."""
    follower = Follower(folder, BIN)
    try:
        for block in blocks_of(ROOT / "docs" / "tutorial.md"):
            is_needed = block.title in ("events.py", "send.py", "totals.py", "terminal: broker")
            if is_needed or "python send.py" in block.text:
                follower.follow(block)
        (program,) = (block.text for block in blocks_of(ROOT / "docs" / "tutorial.md") if block.title == "totals.py")
        code = program.split("\n\n", 2)[2].rstrip().splitlines()
        listing = [("cyan", line) for line in code if not line.startswith("print")]
        shown = _command("python totals.py", folder, follower.environment)
        return [*listing, ("", ""), *[(style, line) for style, line in shown if "bad" not in line and line.strip()]]
    finally:
        follower.close()


def _command(command: str, folder: Path, environment: dict[str, str]) -> Lines:
    path = f"{BIN}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command.split(),
        cwd=folder,
        env={**environment, "PATH": path, "COLUMNS": str(WIDTH)},
        text=True,
        capture_output=True,
        timeout=180,
        check=True,
    )
    printed = re.sub(r"\s+\n", "\n", done.stdout).rstrip("\n").split("\n")
    return [("bold", f"$ {command}"), *[("", line) for line in printed]]


SCENES: dict[str, tuple[str, Callable[[Path], Lines]]] = {
    "service": ("A service with retries and dead letters", service),
    "broker": ("Three brokers, one of them killed", broker),
    "pipeline": ("A topic as a table in Spark", pipeline),
}


def draw(title: str, lines: Lines) -> str:
    """The SVG of a terminal that shows these lines."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for style, line in lines:
        console.print(Text(line, style=style), soft_wrap=False, overflow="ellipsis", no_wrap=True)
    drawn = console.export_svg(title=title, theme=MONOKAI, code_format=FORMAT, unique_id=title.split()[-1].lower())
    return re.sub(r"[ \t]+\n", "\n", drawn)


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        title, scene = SCENES[name]
        with tempfile.TemporaryDirectory() as folder:
            (TARGET / f"{name}.svg").write_text(draw(title, scene(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
