"""The queries in files of alert rules and of dashboards."""

from __future__ import annotations

import json
import re
from pathlib import Path


def dashboard_queries(file: Path) -> list[str]:
    return [target["expr"] for panel in json.loads(file.read_text())["panels"] for target in panel["targets"]]


def alert_queries(file: Path) -> list[str]:
    """Without a YAML library: an expression is a folded scalar, or one line."""
    found = re.findall(r"^        expr: (?:>-\n((?:          .*\n)+)|(.+)\n)", file.read_text(), re.MULTILINE)
    return [" ".join(line.strip() for line in (folded or single).splitlines()) for folded, single in found]
