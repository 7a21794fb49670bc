"""Draws docs/observability/dashboard.svg: the queries of the dashboard, answered by Prometheus during a real run.

    python tools/dashboard_picture.py [--prometheus prometheus] [--seconds 120]

Two processes of one service handle orders of an embedded cluster. After a third of the time the bank that they ask is
away for a while, after two thirds one of the processes ends. Some orders are broken from the start, and the
service's producer has a quota. Prometheus (on PATH, in $PROMETHEUS, or as named) scrapes both processes each second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from dashboard import PANELS

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer
from ottla.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "observability" / "dashboard.svg"

SERVICE = """
import os
import time
from pathlib import Path

from ottla import App, DeadLetterBudget, InvalidRecord, Json, RetryPolicy

thrice = RetryPolicy(max_attempts=4, initial_s=0.2, max_s=1.0)
app = App("billing", retry=thrice, dead_letter_topic="orders.dead-letters")
invoices = app.producer(settings={"client.id": "billing"})


@app.handler("orders", value=Json(int), name="bill", concurrency=4, budget=DeadLetterBudget(burst=40))
def bill(order: int):
    time.sleep(0.004)
    if order % 97 == 0:
        raise InvalidRecord("amount: found 0")
    if Path("bank-is-away").exists() and order % 3 == 0:
        raise ConnectionError("the bank does not answer")
    return invoices.send("invoices", os.urandom(200))
"""

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, COLUMNS, GAP = 330, 190, 3, 12
PLOT_LEFT, PLOT_TOP, PLOT_WIDTH, PLOT_HEIGHT = 44, 30, 276, 100
MOST_SHOWN = 4


@dataclass(frozen=True)
class Line:
    """One series: its legend, and (seconds since the beginning, value) pairs."""

    legend: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Drawn:
    """One panel with what its queries gave."""

    title: str
    unit: str
    lines: list[Line]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the dashboard of a real run.")
    parser.add_argument("--prometheus", default=os.environ.get("PROMETHEUS") or shutil.which("prometheus"))
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    if not arguments.prometheus:
        raise SystemExit("found no prometheus: install it, or name it with --prometheus")
    with tempfile.TemporaryDirectory() as folder:
        panels = run(Path(folder), arguments.prometheus, arguments.seconds)
    FILE.write_text(draw(panels, arguments.seconds), encoding="utf-8")
    sys.stdout.write(f"wrote {FILE}\n")


def run(folder: Path, prometheus: str, seconds: float) -> list[Drawn]:
    """The whole run. Returns every panel with its series."""
    (folder / "billing_service.py").write_text(SERVICE)
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedCluster())
        kafka.create_topic("orders", partitions=6)
        for topic in ("invoices", "orders.dead-letters"):
            kafka.create_topic(topic)
        kafka.set_quotas({"client-id": "billing"}, producer_byte_rate=45_000)
        ports = [_free_port(), _free_port(), _free_port()]
        services = [_started(stack, _service(port), folder, kafka.bootstrap_servers) for port in ports[:2]]
        address = f"127.0.0.1:{ports[2]}"
        _started(stack, _scraping(folder, prometheus, ports[:2], address), folder, kafka.bootstrap_servers)
        base = f"http://{address}/api/v1/"
        wait_until(lambda: _ask(f"{base}query", query="sum(ottla_consumer_partitions)"), 120, what="the first scrape")
        begun_s = time.time()
        _send_orders(kafka.bootstrap_servers, folder, services[1], begun_s, seconds)
        return [
            Drawn(title, unit, [line for query in queries for line in _series(base, query, begun_s, seconds)])
            for title, unit, queries, _ in PANELS
        ]


def _service(port: int) -> list[str]:
    command = [sys.executable, "-m", "ottla", "run", "billing_service:app"]
    return [*command, "--health-port", str(port), "--log-level", "error"]


def _scraping(folder: Path, prometheus: str, ports: list[int], address: str) -> list[str]:
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"  - {{job_name: billing, static_configs: [{{targets: [{targets}]}}]}}\n"
    )
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]
    return [prometheus, *options, f"--web.listen-address={address}"]


def _started(stack: ExitStack, command: list[str], folder: Path, servers: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": servers, "PYTHONPATH": str(folder)}
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _send_orders(servers: str, folder: Path, victim: subprocess.Popen[bytes], begun_s: float, seconds: float) -> None:
    bank = folder / "bank-is-away"
    number, has_ended = 0, False
    with Producer(servers, settings={"client.id": "shop"}) as producer:
        while (passed := (time.time() - begun_s) / seconds) < 1:
            if 1 / 3 < passed < 1 / 2:
                bank.touch()
            else:
                bank.unlink(missing_ok=True)
            if passed > 2 / 3 and not has_ended:
                victim.terminate()
                has_ended = True
            for _ in range(20):
                number += 1
                producer.send("orders", b"broken" if number % 61 == 0 else b"%d" % number, partition=number % 6)
            time.sleep(0.1)


def _series(base: str, query: tuple[str, str], begun_s: float, seconds: float) -> list[Line]:
    expression, legend = query
    expression = expression.replace("$__rate_interval", "10s").replace("$group", ".*")
    found = _ask(f"{base}query_range", query=expression, start=begun_s, end=begun_s + seconds, step=seconds / 120)
    lines = []
    for each in found:
        points = [(float(at) - begun_s, float(value)) for at, value in each["values"] if value not in ("NaN", "+Inf")]
        if points:
            lines.append(Line(_legend(legend, each["metric"]), points))
    return lines


def _legend(legend: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return " ".join(part for part in legend.split() if "{{" not in part)


def _ask(url: str, **parameters: Any) -> list[Any]:
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []  # it does not listen yet


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def draw(panels: list[Drawn], seconds: float) -> str:
    """The picture: a grid of small plots over the same time."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f7"/>',
    ]
    for number, panel in enumerate(panels):
        left = GAP + number % COLUMNS * (WIDTH + GAP)
        top = GAP + number // COLUMNS * (HEIGHT + GAP)
        parts.append(f'<g transform="translate({left},{top})">{_panel(panel, seconds)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Drawn, seconds: float) -> str:
    highest = max((value for line in panel.lines for _, value in line.points), default=0.0) or 1.0
    bottom = PLOT_TOP + PLOT_HEIGHT
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#d0d4da"/>',
        f'<text x="10" y="18" font-size="12" font-weight="bold" fill="#222">{escape(panel.title)}</text>',
        f'<path d="M{PLOT_LEFT} {PLOT_TOP}V{bottom}H{PLOT_LEFT + PLOT_WIDTH}" fill="none" stroke="#aab"/>',
        f'<text x="{PLOT_LEFT - 4}" y="{PLOT_TOP + 8}" font-size="9" text-anchor="end" fill="#555">'
        f"{_amount(highest, panel.unit)}</text>",
        f'<text x="{PLOT_LEFT - 4}" y="{bottom}" font-size="9" text-anchor="end" fill="#555">0</text>',
        f'<text x="{PLOT_LEFT + PLOT_WIDTH}" y="{bottom + 11}" font-size="9" text-anchor="end" fill="#555">'
        f"{seconds:.0f} s</text>",
    ]
    # The highest lines have a name; the rest are drawn.
    by_height = sorted(panel.lines, key=lambda line: -max(value for _, value in line.points))
    for index, line in enumerate(by_height):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(
            f"{PLOT_LEFT + at / seconds * PLOT_WIDTH:.1f},{bottom - value / highest * PLOT_HEIGHT:.1f}"
            for at, value in line.points
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        if index < MOST_SHOWN:
            x, y = 12 + index % 2 * 160, bottom + 25 + index // 2 * 14
            legend = line.legend if len(line.legend) <= 27 else f"{line.legend[:26]}…"
            more = len(by_height) - MOST_SHOWN
            legend += f" (+{more})" if index == MOST_SHOWN - 1 and more > 0 else ""
            parts.append(f'<rect x="{x}" y="{y - 7}" width="8" height="8" fill="{colour}"/>')
            parts.append(f'<text x="{x + 12}" y="{y}" font-size="9.5" fill="#333">{escape(legend)}</text>')
    return "".join(parts)


def _amount(value: float, unit: str) -> str:
    suffix = {"s": " s", "ops": "/s", "bytes": " B"}.get(unit, "")
    if unit == "s" and value < 0.1:
        return f"{value * 1_000:.3g} ms"
    if value >= 10_000:
        return f"{value / 1_000:.3g}k{suffix}"
    return f"{value:.3g}{suffix}"


if __name__ == "__main__":
    main()
