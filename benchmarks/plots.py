"""The plots of the benchmark page, as PNG files with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from judging import NAMES, Parts
from matplotlib import pyplot as plt
from results import Part, Result

COLOURS = {"ottla": "#1f6feb", "mock": "#9aa4b2", "kfake": "#e0a030", "kafka": "#b04a4a"}
LOADS = ("100 B none", "100 B lz4", "1000 B none", "1000 B lz4")
OURS, THEIRS = COLOURS["ottla"], COLOURS["mock"]

AXES = {
    "record size": ("record size, bytes", True),
    "partitions": ("partitions of one topic", True),
    "connections": ("connections, one request under way on each", True),
    "group members": ("members of one group, 50 partitions", True),
    "topics": ("topics of one partition each", True),
    "data": ("data on disk, GB", True),
}
"""Curve → the label of its axis, and whether that is logarithmic."""

Drawn = dict[str, tuple[str, str]]


def draw(parts: Parts, folder: Path) -> Drawn:
    """Draw what there is. Returns section → (file name, what it shows in words)."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110})
    drawn: Drawn = {}
    if "broker" in parts:
        drawn["broker"] = broker_rates(parts["broker"], folder)
    if "sdk" in parts:
        drawn["sdk"] = consumers(parts["sdk"], folder)
    if "planner" in parts:
        drawn["planner"] = plans(parts["planner"], folder)
    if "growth" in parts:
        for name in AXES:
            curve = growth(parts["growth"], name, folder)
            if curve is not None:
                drawn[f"growth/{name}"] = curve
    return drawn


def broker_rates(part: Part, folder: Path) -> tuple[str, str]:
    kinds = [f"{verb} {load}" for verb in ("produce", "consume") for load in LOADS]
    contenders = [name for name in NAMES if any(result.contender == name for result in part.results)]
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    width = 0.8 / len(contenders)
    for index, name in enumerate(contenders):
        found = [part.get(f"{kind}, k records/s", name) for kind in kinds]
        places = [place + (index - (len(contenders) - 1) / 2) * width for place in range(len(kinds))]
        there = [(place, result) for place, result in zip(places, found, strict=True) if result is not None]
        axes.bar(
            [place for place, _ in there],
            [result.value for _, result in there],
            width,
            label=NAMES[name],
            color=COLOURS[name],
            yerr=_errors([result for _, result in there]),
            error_kw={"lw": 0.8, "capsize": 2},
        )
    axes.set_xticks(range(len(kinds)), [kind.replace(" B ", " B\n").replace("e ", "e\n") for kind in kinds], fontsize=9)
    axes.set_ylabel("thousand records per second")
    axes.set_title("One broker, confluent-kafka as client (median and quartiles)", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    return _save(figure, folder, "broker.png"), "rates of producing and consuming, beside other brokers"


def consumers(part: Part, folder: Path) -> tuple[str, str]:
    results = sorted((each for each in part.results if each.what == "consume"), key=lambda each: each.value)
    figure, axes = plt.subplots(figsize=(9, 0.5 + 0.3 * len(results)), layout="constrained")
    colours = [OURS if result.contender.startswith("ottla") else THEIRS for result in results]
    axes.barh(
        [result.contender for result in results],
        [result.value for result in results],
        color=colours,
        xerr=_errors(results),
        error_kw={"lw": 0.8, "capsize": 2},
    )
    axes.set_xscale("log")
    axes.set_xlabel("thousand records per second (logarithmic)")
    for place, result in enumerate(results):
        axes.annotate(f" {result.value:,.3g}", (result.spread[1], place), va="center", fontsize=8)
    axes.set_title("Consuming: a handler that counts", loc="left", fontsize=11)
    return _save(figure, folder, "consumers.png"), "rates of consuming, beside clients and frameworks"


def plans(part: Part, folder: Path) -> tuple[str, str]:
    """Each cluster as a point, by either method; and how long plans took."""
    figure, (quality, times) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    points = [result for result in part.results if result.x is not None]
    for contender in dict.fromkeys(result.contender for result in points):
        own = [result for result in points if result.contender == contender]
        colour, label = (OURS, "ottla plan") if contender == "ottla" else (COLOURS["kafka"], contender)
        quality.scatter([result.x for result in own], [result.value for result in own], s=12, color=colour, label=label)
    quality.axhline(1.05, color=THEIRS, linewidth=1)
    quality.set(xlabel="share of all bytes that is copied", ylabel="fullest broker, over what can be reached")
    quality.legend(frameon=False, fontsize=8)
    taken = part.get("time of a plan", "ottla")
    times.hist([] if taken is None else taken.runs, bins=30, color=OURS)
    times.set(xlabel="seconds for a plan", ylabel="clusters")
    return _save(figure, folder, "plans.png"), "plans for random clusters: how even, what they copy, how long they took"


def growth(part: Part, name: str, folder: Path) -> tuple[str, str] | None:
    """A panel for each unit: the rates, then times and CPU, then memory."""
    results = [result for result in part.results if result.what.startswith(f"{name}: ")]
    if not results:
        return None
    units = list(dict.fromkeys(result.unit for result in results))
    units.sort(key=lambda unit: unit == "MB")
    figure, panels = plt.subplots(1, len(units), figsize=(3.6 * len(units), 3.2), layout="constrained", squeeze=False)
    label, is_logarithmic = AXES[name]
    for axes, unit in zip(panels[0], units, strict=True):
        for what in dict.fromkeys(result.what for result in results if result.unit == unit):
            points = sorted((result for result in results if result.what == what), key=lambda each: each.x or 0)
            places = [result.x for result in points]
            axes.plot(places, [result.value for result in points], marker="o", ms=4, label=what.partition(": ")[2])
            low, high = [result.spread[0] for result in points], [result.spread[1] for result in points]
            axes.fill_between(places, low, high, alpha=0.2, lw=0)
        if is_logarithmic:
            axes.set_xscale("log")
        places = sorted({result.x for result in results})
        axes.set_xticks(places, [_short(place) for place in places], fontsize=8, rotation=45 if len(places) > 5 else 0)
        axes.minorticks_off()
        axes.set_ylim(0, 1.2 * max(result.spread[1] for result in results if result.unit == unit))
        axes.set_xlabel(label, fontsize=9)
        axes.set_ylabel("resident memory, MB" if unit == "MB" else unit)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False, fontsize=8, loc="best")
    file = f"growth-{name.replace(' ', '-')}.png"
    return _save(figure, folder, file), f"growth with {label}"


def _errors(results: Sequence[Result]) -> list[list[float]]:
    below = [max(0.0, result.value - result.spread[0]) for result in results]
    above = [max(0.0, result.spread[1] - result.value) for result in results]
    return [below, above]


def _short(value: float | None) -> str:
    value = value or 0
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1_000:g} k" if value >= 1_000 else f"{value:g}"


def _save(figure, folder: Path, file: str) -> str:  # type: ignore[no-untyped-def]
    figure.savefig(folder / file)
    plt.close(figure)
    return file
