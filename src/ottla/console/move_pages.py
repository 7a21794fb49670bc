"""Moves: reassignments in progress, plans with their bytes, and the plan that this console runs."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from ottla.admin import ClusterFacts
from ottla.admin.placement import move_requests as asks
from ottla.admin.placement import planners
from ottla.admin.placement.executor import Executor, RunOptions
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import MovePlan
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.moves_in_progress import statuses_under_way
from ottla.admin.placement.plan_file import dump_plan
from ottla.admin.placement.run_throttles import check_rate
from ottla.browse.human_amounts import bytes_of, moment
from ottla.browse.plan_files import check_throttle, moves_of_file, opened, parse_ids, rates_of_run
from ottla.browse.plan_items import broker_items, move_items, plan_fields, summary_line
from ottla.console.cluster_pages import matcher
from ottla.console.jobs import Job, Stopped
from ottla.console.query import Query
from ottla.console.state import ConsoleState, state_of
from ottla.errors import BrokerUnavailable, InputError
from ottla.records import TopicPartition

_PLAN: Final = "plan"
_KINDS: Final = ("rebalance", "leaders", "dirs", "add-brokers", "remove-brokers")
_SEARCH_S: Final = 10.0
_MOST_SHOWN: Final = 1_000


def moves(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return reassignments in progress, started by any tool, and the plans that this console runs."""
    query.done()
    seen = console.seen()
    copied = _copied(seen.facts)
    before = {} if seen.before is None else _copied(seen.before)
    seconds = 0.0 if seen.before is None else (seen.facts.at_ms - seen.before.at_ms) / 1000
    waits = {each.move.place: each.why for each in statuses_under_way(seen.facts)} if seen.facts.moves else {}
    items = []
    for move in seen.facts.moves[:_MOST_SHOWN]:
        place = TopicPartition(move.topic, move.partition)
        wanted = seen.facts.partition_bytes.get(place, 0)
        done = min((copied.get((place, broker), 0) for broker in move.adding), default=wanted)
        earlier = min((before.get((place, broker), 0) for broker in move.adding), default=wanted)
        rate = (done - earlier) / seconds if seconds > 0 and done > earlier else None
        items.append(
            {
                "topic": move.topic,
                "partition": move.partition,
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "copied": min(done, wanted),
                "bytes": wanted,
                "bytes_per_second": None if rate is None else round(rate),
                "why": waits.get(place, ""),
            }
        )
    return {
        "schema": "ottla.console.moves/1",
        "state": state_of(seen),
        "total": len(seen.facts.moves),
        "items": items,
        "jobs": console.jobs.items(),
        "brokers": sorted(seen.facts.broker_ids),
    }


def plan(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a plan with the brokers before and after. Nothing moves."""
    kind = query.one_of("kind", _KINDS, "rebalance")
    brokers = query.text("brokers", most=1_000)
    wanted = matcher(query.text("topics", most=300))
    query.done()
    seen = console.seen(fresh=True)
    model = model_of(seen.facts, rates=seen.rates, may_move=wanted)
    until = time.monotonic() + _SEARCH_S
    ids = None if brokers is None else parse_ids(brokers)
    if kind in ("add-brokers", "remove-brokers") and not ids:
        raise InputError(
            f"brokers: found none, wanted the brokers to {'fill' if kind == 'add-brokers' else 'empty'}, as in 4,5"
        )

    def expired() -> bool:
        return time.monotonic() >= until

    if kind == "add-brokers":
        found = planners.add_brokers(model, ids or (), expired=expired)
    elif kind == "remove-brokers":
        found = planners.remove_brokers(model, ids or (), expired=expired)
    elif kind == "dirs":
        found = planners.spread_dirs(model, ids, expired=expired)
    elif kind == "leaders":
        found = planners.balance_leaders(model, expired=expired)
    else:
        found = planners.rebalance(model, expired=expired)
    items = list(move_items(found))
    return {
        "schema": f"ottla.plan.{found.kind}/1",
        "plan": console.plans.keep(found) if items else None,
        "summary": summary_line(found),
        "is_cut_short": found.is_cut_short,
        **plan_fields(found),
        "total": len(items),
        "items": items[:_MOST_SHOWN],
    }


def run(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Write the plan to a file in the folder, and carry it out; the command line goes on with the same file."""
    number = query.number("plan", None, least=1, most=2**53)
    throttle = query.text("throttle", most=30)
    only_write = query.flag("only_write")
    console.agree(query)
    found = console.plans.take(number, MovePlan)
    options = RunOptions(throttle=None if throttle is None else bytes_of("throttle", throttle))
    at = re.sub(r"[-:.]", "", moment(console.now_ms()) or "")
    path = console.choices.folder / f"{found.kind}-{at}.json"
    if path.exists():
        raise InputError(f"{path}: the file exists; a plan never overwrites a file")
    check_throttle(options, tuple(found.moves), said=throttle is not None)
    console.audit(
        "plan.write" if only_write else "plan.run",
        path.name,
        before={f"{each.topic}-{each.partition}": list(each.old) for each in found.moves[:_MOST_SHOWN]},
        after={f"{each.topic}-{each.partition}": list(each.new) for each in found.moves[:_MOST_SHOWN]},
    )
    console.write_file(path, dump_plan(found))
    command = f"ottla plan run {path.name}"
    if only_write:
        return {"schema": "ottla.console.plan-file/1", "file": str(path), "command": command, "job": None}

    def work(job: Job) -> None:
        def report(progress: MoveProgress) -> None:
            job.progress = {
                "done": progress.done,
                "moves": progress.moves,
                "copied": progress.copied,
                "bytes": progress.bytes,
                "bytes_per_second": None if progress.rate is None else round(progress.rate),
                "left_s": None if progress.left_s is None else round(progress.left_s),
                "problem": progress.problem,
                "brokers": broker_items(progress.brokers),
                "waits": [f"{each.move.place}: {each.why}" for each in progress.statuses if each.why][:5],
                "file": str(path),
            }
            if job.stop.is_set():
                raise Stopped

        wanted = moves_of_file(console.admin, path, options, is_run=True, warn=console.warn)
        if not wanted:
            return
        with opened(path, wanted) as book:
            try:
                outcome = Executor(console.admin.carry_out, wanted, book, options, report=report).run()
            except Stopped:
                if job.is_left:  # the brokers go on, and so does the command with the file
                    raise
                outcome = Executor(console.admin.carry_out, wanted, book, options).cancel()
                job.progress = {**job.progress, "refused": list(outcome.refused)}
                raise
        if not outcome.is_complete:
            left = [f"{each.move.place}: {each.why or each.state.value}" for each in outcome.not_done[:5]]
            raise InputError("; ".join([*left, *outcome.throttles_left]) or "not all of it was done")

    job = console.jobs.begin(_PLAN, path.name, work, {"throttle": options.throttle})
    return {"schema": "ottla.console.plan-file/1", "file": str(path), "command": command, "job": job.item()}


def jobs(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return this console's jobs, running and finished."""
    query.done()
    return {"schema": "ottla.console.jobs/1", "items": console.jobs.items()}


def stop_job(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Stop one. Of a plan, what is under way is cancelled and its throttles are taken away."""
    number = query.number("id", None, least=1, most=2**53)
    query.done()
    job = console.jobs.job(number)
    console.audit("job.stop", f"{job.kind} {job.subject}")
    job.stop.set()
    return job.item()


def throttle(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Change the throttle of a plan that is carried out here. What was set before it comes back when it ends."""
    number = query.number("id", None, least=1, most=2**53)
    given = query.needed("throttle")
    console.agree(query)
    rate = bytes_of("throttle", given)
    job = console.jobs.job(number)
    if job.kind != _PLAN or job.state != "running" or job.stop.is_set():
        raise InputError(f"job {number}: found a {job.kind} that is {job.state}, wanted a plan that is running")
    path = console.choices.folder / job.subject
    settings = rates_of_run(path, given)
    check_rate(rate, moves_of_file(console.admin, path, RunOptions(), is_run=False, warn=console.warn))
    console.audit("plan.throttle", path.name, before=job.standing.get("throttle"), after=rate)
    failed = console.admin.carry_out(asks.set_all(settings, back=False))
    if failed:
        raise BrokerUnavailable("; ".join(f"not changed: {what}: {error}" for what, error in failed.items()))
    job.standing = {**job.standing, "throttle": rate}
    return job.item()


def _copied(facts: ClusterFacts) -> dict[tuple[TopicPartition, int], int]:
    """Return the bytes of each replica on each broker."""
    return {
        (TopicPartition(replica.topic, replica.partition), broker.id): replica.bytes
        for broker, _, replica in facts.replicas()
    }
