"""The tables of the page: each takes what a part measured, and gives its lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goals_of_handlers import wanted_of
from goals_of_hot_paths import CPU, CPU_RATIO, HOT_PATHS, PAUSE, TIME, TIME_RATIO
from judging import NAMES, advantage_of, number, ratio_of
from results import Part, Result
from sdk_contenders import GROUPS

PEERS = ("mock", "kfake", "kafka")


def spread(result: Result) -> str:
    """`12.3 [11.9–12.8]`"""
    if len(result.runs) == 1:
        return number(result.value)
    return f"{number(result.value)} [{number(result.spread[0])}–{number(result.spread[1])}]"


def names_of(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.what for result in results))


def broker_table(part: Part) -> Iterable[str]:
    peers = [peer for peer in PEERS if any(result.contender == peer for result in part.results)]
    yield "Ratios are Ottla's figure divided by the peer's: for rates more is better, for CPU, memory and times less.\n"
    yield (
        "Apache Kafka opens each batch that is produced and checks its records; this broker does so with "
        "`log.records.validation.enable=true`, at [2 µs a record](reference/differences.md#chosen-for-tests).\n"
    )
    titles = ["", *(f"/ {NAMES[peer]}" for peer in peers), "Ottla", *(NAMES[peer] for peer in peers)]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * (2 * len(peers) + 2) + "|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        if ours is None:
            continue
        theirs = [part.get(what, peer) for peer in peers]
        ratios = [f"{ratio_of(ours, peer):.2f}" if peer is not None else "" for peer in theirs]
        yield f"| {what} | {' | '.join([*ratios, spread(ours), *(spread(p) if p else '' for p in theirs)])} |"


def profile_table(part: Part) -> Iterable[str]:
    yield "CPU time of the broker's process, and the functions that take most of what is Python's (under cProfile).\n"
    yield "| | | |"
    yield "|---|---|---|"
    for result in part.results:
        load, _, what = result.what.partition(", ")
        function = what.removeprefix("in ")
        is_function = result.unit == "% of its Python"
        yield f"| {load} | {f'in `{function}`' if is_function else what} | {number(result.value)} {result.unit} |"


def cluster_table(part: Part) -> Iterable[str]:
    yield "| | / Apache Kafka | Ottla | Apache Kafka |"
    yield "|---|---|---|---|"
    for what in names_of(part.results):
        ours, kafka = part.get(what, "ottla"), part.get(what, "kafka")
        if ours is not None:
            ratio = f"{ratio_of(ours, kafka):.2f}" if kafka is not None else ""
            theirs = spread(kafka) if kafka is not None else ""
            yield f"| {what}, {ours.unit} | {ratio} | {spread(ours)} | {theirs} |"


def producer_table(part: Part) -> Iterable[str]:
    yield "100-byte values, a key, two headers, idempotent, acks=all, every delivery heard of.\n"
    yield "| | / raw confluent-kafka | / raw aiokafka | k records/s |"
    yield "|---|---|---|---|"
    bases = [part.get("produce", base) for base in ("raw confluent-kafka", "raw aiokafka")]
    for result in part.results:
        ratios = " | ".join(f"{ratio_of(result, base):.2f}" if base else "" for base in bases)
        yield f"| {result.contender} | {ratios} | {spread(result)} |"


def sdk_table(part: Part) -> Iterable[str]:
    yield "Handlers that only count. The CPU ratio is Ottla's time per record divided by the peer's: less is better.\n"
    yield "| | rate ratio | CPU ratio | Ottla, k records/s | peer, k records/s |"
    yield "|---|---|---|---|---|"
    for title, (ours, peers) in GROUPS.items():
        mine, my_cpu = part.get("consume", ours), part.get("CPU per record", ours)
        if mine is None or my_cpu is None:
            continue
        for peer in peers:
            theirs, their_cpu = part.get("consume", peer), part.get("CPU per record", peer)
            if theirs is None or their_cpu is None:
                yield f"| {title} / {peer} | not measured | | {spread(mine)} | |"
                continue
            ratios = f"{ratio_of(mine, theirs):.2f} | {ratio_of(my_cpu, their_cpu):.2f}"
            yield f"| {title} / {peer} | {ratios} | {spread(mine)} | {spread(theirs)} |"
    fair = [what for what in names_of(part.results) if what.endswith(", wait p50")]
    if fair:
        yield "\nFairness: a slow handler, hot partitions with far more than can be handled, and a quiet one.\n"
        yield "| | who | wait p50, s | longest, s | all, records/s |"
        yield "|---|---|---|---|---|"
    for what in fair:
        base = what.removesuffix(", wait p50")
        for waited in [result for result in part.results if result.what == what]:
            worst, rate = (part.get(f"{base}, {each}", waited.contender) for each in ("longest wait", "rate"))
            others = " | ".join(number(each.value) if each else "" for each in (worst, rate))
            yield f"| {base.removeprefix('fairness, ')} | {waited.contender} | {number(waited.value)} | {others} |"


def pairs_table(part: Part) -> Iterable[str]:
    yield "| | ratio | goal | Ottla | beside it |"
    yield "|---|---|---|---|---|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        other = next((each for each in part.results if each.what == what and each.contender != "ottla"), None)
        if ours is None and other is not None:
            yield f"| {what}, {other.unit} | | | | {spread(other)} ({other.contender}) |"
        elif ours is not None and other is not None:
            goal = "" if ours.goal is None else f"{ours.goal:g}"
            beside = f"{spread(other)} ({other.contender})"
            yield f"| {what}, {ours.unit} | {ratio_of(ours, other):.2f} | {goal} | {spread(ours)} | {beside} |"


def beside_table(part: Part) -> Iterable[str]:
    """Yield a row for each figure, with its goal (of `goals_of_handlers`), Ottla's value and the other contenders'."""
    name = part.head["part"]
    yield "Of a ratio more is better in every row: a rate is divided by the peer's, and the peer's cost by Ottla's.\n"
    yield "| | ratio | goal | Ottla | beside it |"
    yield "|---|---|---|---|---|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        if ours is None:
            continue
        others = [each for each in part.results if each.what == what and each is not ours]
        own_goal = wanted_of(name, what)
        if own_goal or not others:
            yield f"| {what}, {ours.unit} | | {own_goal} | {spread(ours)} | |"
        for other in others:
            goal, beside = wanted_of(name, what, other.contender), f"{spread(other)} ({other.contender})"
            ratio = (
                f"{advantage_of(ours, other):.2f}" if ours.value and other.value else ""
            )  # none where one has nothing
            yield f"| {what}, {ours.unit} | {ratio} | {goal} | {spread(ours)} | {beside} |"


def contenders_table(part: Part) -> Iterable[str]:
    """Yield a row for each figure, with all of its contenders."""
    yield "| | goal | Ottla | beside it |"
    yield "|---|---|---|---|"
    for what in names_of(part.results):
        ours = part.get(what, "ottla")
        others = [each for each in part.results if each.what == what and each.contender != "ottla"]
        unit = (ours or others[0]).unit
        goal = "" if ours is None or ours.goal is None else f"{ours.goal:g}"
        beside = ", ".join(f"{spread(each)} ({NAMES.get(each.contender, each.contender)})" for each in others)
        yield f"| {what}, {unit} | {goal} | {'' if ours is None else spread(ours)} | {beside} |"


def figures_table(part: Part) -> Iterable[str]:
    """Yield tables of results that are called `row: column`, one for each set of columns."""
    rows: dict[str, dict[str, str]] = {}
    for each in part.results:
        row, _, column = each.what.rpartition(": ")
        whose = "" if each.contender == "ottla" else f", {each.contender}"
        rows.setdefault(row, {})[f"{column}, {each.unit}{whose}"] = spread(each)
    for at, columns in enumerate(dict.fromkeys(tuple(cells) for cells in rows.values())):
        if at:
            yield ""
        yield f"| | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for row, cells in rows.items():
            if tuple(cells) == columns:
                yield f"| {row} | {' | '.join(cells.values())} |"


def hot_paths_table(part: Part) -> Iterable[str]:
    """Yield a row for each contender: CPU time, wall time, and the ratios of the client's times to these."""
    yield f"| | CPU, µs per record | {CPU_RATIO} | goal | time, µs per record | {TIME_RATIO} | longest pause, ms |"
    yield "|---|---|---|---|---|---|---|"
    for each in part.results:
        if each.what != CPU:
            continue
        name = each.contender
        others = [part.get(what, name) for what in (CPU_RATIO, TIME, TIME_RATIO, PAUSE)]
        of_cpu, time, of_time, pause = (spread(other) if other else "" for other in others)
        goal = f"{HOT_PATHS[name]:g}" if name in HOT_PATHS else ""
        yield f"| {name} | {spread(each)} | {of_cpu} | {goal} | {time} | {of_time} | {pause} |"


def growth_table(part: Part) -> Iterable[str]:
    """Yield a row for each curve, with its first and its last point; the plots have all points."""
    yield "The ends of each curve; the plots and the result file have the points between.\n"
    yield "| curve | from | to |"
    yield "|---|---|---|"
    for what in names_of(part.results):
        points = sorted((each for each in part.results if each.what == what), key=lambda each: each.x or 0)
        ends = [f"{number(each.value)} {each.unit} at {each.x:,g}" for each in (points[0], points[-1])]
        yield f"| {what} | {' | '.join(ends)} |"


def planner_table(part: Part) -> Iterable[str]:
    """Yield a row for each figure, with its distribution over the clusters; the plot has each of them."""
    yield "| | by | goal | median | p90 | worst |"
    yield "|---|---|---|---|---|---|"
    for result in part.results:
        if result.x is not None:
            continue
        ordered = sorted(result.runs)
        ninth = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
        goal = "" if result.goal is None else f"{result.goal:g}"
        rest = f"{number(ninth)} | {number(ordered[-1])}" if len(ordered) > 1 else " | "
        who = NAMES.get(result.contender, result.contender)
        yield f"| {result.what}, {result.unit} | {who} | {goal} | {number(result.value)} | {rest} |"


def soak_table(part: Part) -> Iterable[str]:
    yield "| | |"
    yield "|---|---|"
    for result in part.results:
        yield f"| {result.what} | {number(result.value)} {result.unit} |"
