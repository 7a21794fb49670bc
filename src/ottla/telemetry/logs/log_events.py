"""The table of log events: each event's name, levels, fields and meaning.

`docs/reference/telemetry.md` is made from it. A test compares it with the source, and every test run compares it with
each event that is logged. To log something new, add a row here and run `python tools/telemetry_page.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_wire.facts import fact

COMMON_FIELDS: Final = {
    "event": "the name of the event",
    "level": "`debug`, `info`, `warning` or `error`",
    "timestamp": "when it was logged: ISO 8601 in UTC in JSON lines, local time on a terminal",
    "trace_id": "the trace, 32 hexadecimal digits, where there is one",
    "span_id": "the span, 16 hexadecimal digits, where there is one",
    "worker": "the number of the worker process, under `ottla run --workers`",
    "event_before": "the name of the event before 0.2, where it was renamed; this field goes with 0.3",
    "held_back": "how many events of this name and place the rate limit held back since the last line",
    "exception": "the traceback as text, without local variables, where an exception was raised",
}
"""Fields that an event of any name may have."""

BURST: Final = 20
"""How many events of one name and place pass in each interval, where a row `repeats`."""

INTERVAL_MS: Final = 10_000


@fact
class LogEvent:
    """One row. `optional` fields are there when they apply; `repeats` events are rate limited.

    `before` is the name that the event had in 0.1. Lines have it as `event_before`, and `ottla.consumer.events` counts
    the event under both names, so that searches and alerts for the old one work for one release more.
    """

    name: str
    levels: tuple[str, ...]
    meaning: str
    fields: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    repeats: bool = False
    before: str | None = None


def _row(
    name: str,
    levels: str,
    meaning: str,
    fields: str = "",
    optional: str = "",
    *,
    repeats: bool = False,
    before: str | None = None,
) -> LogEvent:
    return LogEvent(
        name=name,
        levels=tuple(levels.split()),
        meaning=meaning,
        fields=tuple(fields.split()),
        optional=tuple(optional.split()),
        repeats=repeats,
        before=before,
    )


_OF_RECORD = "group partition offset kind error attempts"

GROUPS: Final[Mapping[str, tuple[LogEvent, ...]]] = {
    "Services": (
        _row("app_started", "info", "All groups of the app have subscribed.", "app groups"),
        _row(
            "signals_not_handled",
            "info warning",
            "`serve` does not take SIGTERM and SIGINT: what ends the program must stop the app first. A warning where "
            "nothing else handles them.",
            "app reason hint",
        ),
        _row(
            "app_stopping", "info", "The app stops and waits for records in handlers.", "app waits_for at_most_s hint"
        ),
        _row(
            "event_loop_blocked",
            "error",
            "A call blocks the event loop: no heartbeat, commit or other handler runs. `stack` is where in the code.",
            "app blocked_s stack",
            "handler partition offset",
            repeats=True,
        ),
        _row("app_stopped", "info", "All finished records are committed, and the app left its groups.", "app"),
        _row(
            "app_ended_early",
            "error",
            "The app that runs beside a web application ended; the web application continues and is not ready.",
            "app error",
        ),
        _row("worker_started", "info", "`ottla run --workers` started a worker process.", "worker pid"),
        _row(
            "worker_ended",
            "error",
            "A worker process ended by itself, and is started again. `exit_code` is negative if a signal ended it.",
            "worker exit_code deaths again_in_s",
        ),
        _row(
            "worker_replaced",
            "error",
            "A worker makes no progress, or only a restart helps it: it is stopped and started again.",
            "worker reason for_s limit_s",
        ),
        _row("worker_forced", "warning", "A worker is late to stop: it is ended at once, or killed.", "worker how"),
        _row("worker_not_started", "error", "No process could be started for a worker.", "worker error"),
        _row(
            "workers_given_up",
            "error",
            "A worker cannot load the app, or ended too often: all workers are stopped, and the exit code is not 0.",
            "worker exit_code deaths reason",
        ),
        _row("stop_hook_failed", "error", "An `on_stop` hook raised. The others were called.", "app hook error"),
        _row(
            "address_chosen",
            "info",
            "The code, the command line and the environment name different addresses: which one is taken.",
            "taken from passed_over",
        ),
        _row("broker_awaited", "warning", "No broker listens yet; the start waits.", "problem for_s"),
        _row(
            "call_retried",
            "debug",
            "A call failed, or what it waits for is not there yet; it is tried again.",
            "call attempt error in_ms",
        ),
        _row(
            "queue_group_set",
            "info",
            "A setting of a queue's share group was set, because it is new or nobody chose it.",
            "group setting value",
        ),
        _row(
            "queue_group_not_set",
            "warning",
            "A setting of a new share group could not be set: jobs that are there already may never be delivered.",
            "group setting value error hint",
        ),
        _row(
            "queue_partition_refused",
            "error",
            "A broker does not lease records of a partition.",
            "group partition error",
            repeats=True,
        ),
        _row("topics_awaited", "warning", "Topics do not exist yet; the start waits.", "topics missing for_s"),
        _row("topic_created", "info", "A topic named in `create_topics` was created.", "topic"),
        _row("retry_topic_created", "info", "A retry topic was created.", "topic", before="retry_topic_made"),
        _row(
            "topic_differs",
            "warning",
            "A topic has another number of partitions than the app declares.",
            "topic found_partitions declared_partitions",
        ),
        _row(
            "dead_letter_topics_unchecked",
            "warning",
            "The check whether dead letter topics are writable failed.",
            "topics error",
        ),
    ),
    "Bridge": (
        _row("bridge_listening", "info", "A bridge takes MQTT connections.", "address"),
        _row("bridge_stopped", "info", "A bridge has ended; how many messages it received.", "received"),
        _row(
            "bridge_stopped_early",
            "warning",
            "Records were not acknowledged by Kafka in time: their publishers have no acknowledgement.",
            "in_flight",
        ),
        _row("bridge_stop_failed", "error", "A road did not end as it should.", "error"),
        _row("bridge_reloaded", "info", "Mapping, users and certificates were read again.", "rules"),
        _row(
            "bridge_reload_failed",
            "error",
            "They could not be read, or name a topic that is missing: all is as it was.",
            "error",
        ),
        _row("bridge_source_connected", "info", "A broker delivers its messages.", "source has_session"),
        _row(
            "bridge_source_lost",
            "warning",
            "A broker does not deliver messages; it is connected to again.",
            "source reason",
            repeats=True,
        ),
        _row(
            "bridge_client_gone",
            "debug info",
            "A publisher's connection ended; debug where it disconnected itself.",
            "client address reason",
            repeats=True,
        ),
        _row("bridge_connections_full", "warning", "A connection was refused.", "limit", repeats=True),
        _row("bridge_login_failed", "error", "The function that decides about logins raised.", "client error"),
        _row(
            "bridge_registry_awaited",
            "warning",
            "A payload cannot be checked: the schema registry does not answer. Its connection waits.",
            "error",
            repeats=True,
        ),
        _row(
            "bridge_message_refused",
            "warning",
            "A message does not become a record. Its publisher got the reason code, or was disconnected.",
            "road source error code",
            repeats=True,
        ),
        _row(
            "bridge_message_dead_lettered",
            "warning",
            "A message does not become a record. It is written to the dead letter topic, then acknowledged.",
            "road source error code topic",
            repeats=True,
        ),
        _row(
            "bridge_message_not_written",
            "warning",
            "Whether Kafka has a message is not known, or its dead letter was not taken: it is not acknowledged, and "
            "its connection ends.",
            "road error",
            repeats=True,
        ),
    ),
    "Records": (
        _row(
            "results_not_written",
            "warning",
            "Rows that a handler of columns returned were not acknowledged. They are written again.",
            "group error",
            repeats=True,
        ),
        _row(
            "record_retried",
            "warning",
            "A record failed and is delivered again in this process.",
            f"{_OF_RECORD} in_ms",
            "origin records",
            repeats=True,
        ),
        _row(
            "record_sent_to_retry_topic",
            "warning",
            "A record failed and is written to a retry topic.",
            f"{_OF_RECORD} in_ms",
            "origin form",
            repeats=True,
            before="record_postponed",
        ),
        _row(
            "record_dead_lettered",
            "warning",
            "A dead letter was acknowledged.",
            f"{_OF_RECORD} dead_letter_topic",
            "origin form",
            repeats=True,
        ),
        _row(
            "record_skipped",
            "warning",
            "A record failed and its failure policy skips it without a dead letter.",
            _OF_RECORD,
            "origin records",
            repeats=True,
        ),
        _row(
            "record_dropped",
            "warning",
            "A record failed under `AtMostOnce` and is not delivered again.",
            _OF_RECORD,
            "origin records",
            repeats=True,
        ),
        _row(
            "records_expired",
            "warning",
            "Records were not handled because they had expired; one line per partition and minute.",
            "group partition records offset",
            "error",
        ),
        _row(
            "records_diverted",
            "info",
            "Records follow an earlier record of their key to a retry topic: its delay is over 5 s, or they waited.",
            "group partition records offset",
            repeats=True,
            before="records_parked",
        ),
        _row(
            "dead_letter_budget_spent",
            "error",
            "More records fail than the dead letter budget allows, so the record waits.",
            f"{_OF_RECORD} in_ms",
            "origin",
            repeats=True,
        ),
        _row(
            "dead_letter_without_value",
            "error",
            "A record did not fit into the dead letter topic, so its dead letter has the position only.",
            "group partition offset topic key_bytes value_bytes",
            "origin",
            repeats=True,
        ),
        _row(
            "dead_letter_write_failed",
            "warning",
            "A dead letter or retry was not acknowledged and is written again.",
            "group partition offset error writes",
            repeats=True,
        ),
        _row(
            "lease_lost",
            "info warning",
            "A lease of a queue ended without an acknowledgement: its connection broke, or its lock ran out. The "
            "record is delivered again. A warning where a handler was at it, or had handled it (`is_handled`).",
            "group partition offset reason is_handled",
            repeats=True,
        ),
        _row(
            "jobs_not_settled",
            "warning",
            "The caller of a `Queue` has as many jobs as it may have, and settles none: no other one is leased.",
            "group jobs",
            repeats=True,
        ),
        _row(
            "job_timed_out",
            "warning",
            "A job was not handled within `max_job_s`. The attempt counts as failed.",
            "group partition offset after_s",
            repeats=True,
        ),
        _row(
            "late_result_dropped",
            "warning",
            "The handler of a job returned after its lease had ended. The record is delivered again.",
            "group partition offset",
            repeats=True,
        ),
        _row(
            "acknowledgements_unknown",
            "warning",
            "The connection to a broker ended before it answered: jobs may be delivered again that were acknowledged.",
            "group records error",
            repeats=True,
        ),
        _row(
            "leased_records_unreadable",
            "error",
            "A batch of a queue's topic is corrupt. Its records are released, and given up by the broker in the end.",
            "group partition error",
            repeats=True,
        ),
        _row(
            "records_lost_before_read",
            "error",
            "Records were deleted from the log before they were read.",
            "group partition from to why",
            "records_at_most",
            before="records_skipped",
        ),
        _row(
            "topic_missing",
            "warning",
            "A topic that a running member reads no longer exists. The member reads the others, and is not ready.",
            "group topic",
        ),
        _row("topic_found", "info", "A topic that was missing exists again.", "group topic missing_s"),
        _row(
            "started_at_log_end",
            "warning",
            "A partition without a commit begins at its end, although its group has committed other partitions.",
            "group partition from to records_at_most why",
            repeats=True,
        ),
        _row(
            "headers_unread",
            "error",
            "The headers of a record could not be read again.",
            "position error",
            repeats=True,
        ),
    ),
    "Effectively once": (
        _row(
            "duplicates_skipped",
            "info",
            "The inbox had messages of a run already, so they were not handled again.",
            "group handler partition offset records",
            repeats=True,
        ),
        _row(
            "message_without_id",
            "warning",
            "A message has no id, so its position is used instead, and duplicates from a producer are not found."
            " Logged once.",
            "group handler position",
        ),
        _row(
            "run_fenced",
            "warning",
            "Another member claimed the partition, so the run was rolled back.",
            "group handler partition offset records epoch",
            repeats=True,
        ),
        _row(
            "transaction_failed",
            "warning",
            "A transaction of results and offsets was aborted. The same results are written again.",
            "group error",
            repeats=True,
        ),
        _row(
            "transaction_outcome_open",
            "warning",
            "The response to a commit was lost. The client asks for the outcome until it gets one.",
            "group error",
            repeats=True,
        ),
        _row(
            "inbox_mark_failed",
            "warning",
            "Messages were handled but could not be marked. The marking is retried, without handling them again.",
            "group handler partition offset records error",
            repeats=True,
        ),
        _row(
            "inbox_lease_lost",
            "warning",
            "Claims ran out or could not be renewed while the handler worked, so another member may have the messages.",
            "group handler messages",
            repeats=True,
        ),
        _row(
            "event_type_unhandled",
            "info",
            "Records whose event type has no handler; `otherwise=` says what becomes of them.",
            "group handler partition offset records type",
            repeats=True,
        ),
        _row(
            "resource_close_failed",
            "warning",
            "A resource of a failed run raised another error when it was closed. All records of the run come again.",
            "group handler error",
        ),
        _row("inbox_clean_failed", "warning", "Old message ids could not be deleted.", "group handler error"),
        _row(
            "store_unavailable",
            "warning",
            "The store is unavailable, and records wait for it.",
            "group handler store error",
        ),
        _row(
            "store_eviction_unknown",
            "warning",
            "Redis did not return its `maxmemory-policy`. A policy that evicts keys would lose message ids.",
            "error hint",
        ),
    ),
    "Partitions and groups": (
        _row(
            "clock_moved",
            "warning",
            "The host's clock was set while the member ran. Times in headers, and what is due, follow it.",
            "group by_ms",
            repeats=True,
        ),
        _row("partitions_assigned", "info", "The group assigned partitions to this member.", "group partitions"),
        _row("partitions_revoked", "info", "Partitions were revoked.", "group partitions"),
        _row("partitions_lost", "warning", "Partitions were lost without a revocation.", "group partitions"),
        _row(
            "partition_stopped",
            "error",
            "A partition stopped at a record that no declared outcome handles, until it is resumed.",
            "group partition offset reason",
        ),
        _row(
            "topic_recreated",
            "warning",
            "A topic was deleted and created again. The new log is read from its start.",
            "group partition from to why",
        ),
        _row(
            "log_truncated",
            "warning",
            "A log ends before the position that was read.",
            "group partition from to why",
        ),
        _row(
            "commit_failed",
            "info warning",
            "The coordinator refused a commit. `info` when a rebalance explains it.",
            "group error is_fenced",
            repeats=True,
        ),
        _row(
            "final_commit_failed",
            "warning",
            "The last commit before a revocation or a stop failed. Records are delivered again.",
            "group error",
            "is_fenced",
        ),
        _row(
            "commit_metadata_nearly_full",
            "warning",
            "A record blocks the commit position while many records behind it are done. The partition is paused.",
            "group partition offset finished_beyond size_bytes limit_bytes",
        ),
        _row("commit_metadata_unread", "warning", "The metadata of committed offsets was not read.", "group error"),
        _row(
            "client_error",
            "info warning error",
            "The Kafka client reported an error; each code at most once in ten seconds.",
            "group code error held_back",
        ),
        _row("consumer_failed", "error", "The consumer ended with an error.", "group error"),
        _row("worker_died", "error", "A worker ended with an error that is not the handler's.", "group error"),
        _row("handler_exited", "error", "A handler raised `SystemExit` or `KeyboardInterrupt`.", "group error"),
        _row(
            "handler_left_running",
            "warning",
            "A handler had not ended when the consumer stopped. Its record is not committed, and is delivered again.",
            "group handler partition offset",
        ),
        _row("client_close_abandoned", "warning", "The client did not close in time.", "group after_s"),
    ),
    "Producers": (
        _row("brokers_down", "warning", "The producer cannot reach any broker.", "servers last_problem"),
        _row(
            "client_throttled",
            "warning",
            "A broker throttles this client for its quota; logged at most once in ten seconds.",
            "broker throttle_ms held_back",
            "group servers",
        ),
        _row(
            "delivery_callback_failed",
            "error",
            "A delivery callback of the user raised.",
            "topic error",
            repeats=True,
        ),
        _row(
            "delivery_reports_failed", "error", "Reading delivery reports failed, and continues.", "error", repeats=True
        ),
        _row(
            "client_callback_failed", "error", "A callback of the Kafka client raised.", "callback error", repeats=True
        ),
        _row(
            "token_not_renewed",
            "warning error",
            "A token for SASL OAUTHBEARER could not be fetched. It is tried again; the last one is used while it is "
            "good, and at `error` there is none.",
            "source error token_good_for_s",
            repeats=True,
        ),
        _row("topic_limits_unknown", "warning", "The size limits of topics could not be read.", "topics error"),
        _row(
            "batch_size_above_topic_limit",
            "error",
            "`batch.size` is above `max.message.bytes` of a topic. Sends to it raise.",
            "topic error",
        ),
        _row(
            "transaction_left_open",
            "warning",
            "A transaction was neither committed nor aborted at the end.",
            "transactional_id error",
        ),
        _row(
            "transaction_aborted_by_a_new_client",
            "warning",
            "An abort was refused; a new client with the same id aborts the transaction.",
            "error",
        ),
        _row(
            "producer_renewal_failed", "warning", "A new client could not be created yet, and is tried again.", "error"
        ),
        _row(
            "sent_after_handler",
            "warning",
            "A task or thread of a handler sent after the handler had returned, so no record waits for it. Logged once"
            " per handler.",
            "group handler topic",
        ),
        _row(
            "send_of_failed_record_lost",
            "warning",
            "A handler failed, and something that it had sent before was not delivered either.",
            "topic error",
            repeats=True,
        ),
        _row(
            "writes_refused",
            "warning",
            "Brokers answer, and do not take records of a topic for now: a disk is full, replicas are missing.",
            "client topic error",
        ),
        _row("writes_taken_again", "info", "Brokers take records of the topic again.", "client topic for_s"),
        _row("producer_not_closed", "warning", "The process ends, and a producer was not closed.", "records servers"),
        _row(
            "records_lost_at_exit",
            "error",
            "The process, or the tasks of its event loop, ended before these records were delivered.",
            "",
            "records servers error",
        ),
        _row(
            "client_shutdown_failed",
            "error",
            "A client raised while the process ended.",
            "error",
            before="client_not_ended",
        ),
    ),
    "Telemetry": (
        _row(
            "telemetry_failed",
            "warning",
            "A listener raised: hooks, a span processor, a propagator or an instrument. Records are not affected.",
            "callback error",
            repeats=True,
        ),
    ),
    "Placement": (
        _row(
            "plan_due",
            "warning",
            "`ottla plan watch` wrote a plan: a disk will be full, or brokers are skewed.",
            "reasons file moves bytes",
        ),
        _row(
            "plan_has_no_effect",
            "warning",
            "A plan is due, but no move of replicas would help.",
            "reasons notes",
            before="plan_does_not_help",
        ),
        _row("plan_waits", "info", "A plan is due while other moves are under way.", "file reason"),
        _row("plan_run_begins", "info", "A plan is executed, or continued.", "file"),
        _row("plan_run_pauses", "info", "The hours are over. Moves under way continue in the brokers.", "file"),
        _row("plan_run_ended", "info warning", "The execution of a plan ended.", "file not_done throttles_left"),
        _row(
            "plan_watch_ended",
            "info",
            "`ottla plan watch` ended. `file` is the plan that was begun and is not finished, if any.",
            "file",
        ),
        _row(
            "plan_watch_failed",
            "warning",
            "The cluster could not be read; it is read again at the next check.",
            "error",
        ),
    ),
    "Schedules": (
        _row("scheduler_started", "info", "A scheduler joined the group of its schedule.", "schedule"),
        _row(
            "task_outdated",
            "warning",
            "An app declares a recurring task, and a later version of it is in force, which stays.",
            "task version found_version",
        ),
        _row(
            "task_undeclared",
            "warning",
            "A recurring task of the app's group is not declared by the app that starts. It continues.",
            "task hint",
        ),
        _row("scheduler_failed", "error", "The scheduler of an app failed, and starts again.", "schedule error"),
        _row(
            "no_scheduler",
            "warning",
            "A producer schedules messages, but no scheduler runs, so all are late. Logged once each time.",
            "schedule hint",
        ),
        _row(
            "schedule_unsafe",
            "error",
            "A schedule's topic was given retention or compaction, which may delete messages before they are due."
            " Logged once for each setting that is found; the scheduler is not ready until it is undone.",
            "schedule error",
        ),
        _row("scheduler_stopped", "info", "A scheduler released its slots and left the group.", "schedule"),
        _row(
            "schedule_slot_reset",
            "info warning",
            "A slot is read again from its start. `info` if another scheduler took it over.",
            "slot error",
            repeats=True,
            before="schedule_slot_begins_anew",
        ),
    ),
    "Outboxes": (
        _row("outbox_relay_started", "info", "A relay started; another relay may be the active one.", "relay"),
        _row("outbox_relay_active", "info", "This relay is the active one.", "relay", before="outbox_relay_works"),
        _row("outbox_relay_waits", "info", "Another relay is active, and this one stands by.", "relay"),
        _row(
            "outbox_relay_stopped",
            "info",
            "Records in flight are settled, and another relay may become active.",
            "relay relayed",
        ),
        _row("outbox_relay_failed", "error", "The relay of an app failed, and starts again.", "error"),
        _row(
            "outbox_store_unavailable",
            "warning error",
            "The outbox could not be read or written, and the relay waits. Level `error`: the database refused the"
            " statement.",
            "error for_s",
            repeats=True,
            before="outbox_store_away",
        ),
        _row(
            "outbox_row_failed",
            "warning",
            "A row's record was not delivered, and is tried again or parked.",
            "row topic error",
            repeats=True,
        ),
        _row("outbox_row_parked", "error", "A row was refused and is kept; later rows of its key wait.", "row error"),
    ),
    "Pipelines": (
        _row("pipeline_started", "info", "All queries run.", "pipeline version sinks"),
        _row("pipeline_stopping", "info", "The pipeline stops when the running micro-batches end.", "pipeline after"),
        _row("pipeline_stopped", "info", "All queries ended.", "pipeline version"),
        _row(
            "pipeline_batch",
            "info",
            "A micro-batch with rows ended.",
            "pipeline version sink batch rows malformed took_ms rows_per_second lag",
        ),
        _row("pipeline_source_started_too_slowly", "warning", "A query is started again.", "sink"),
        _row("pipeline_lock_lost", "error", "Another process has taken the lock of a checkpoint.", "checkpoint"),
        _row(
            "pipeline_lock_not_renewed",
            "warning",
            "The lock of a checkpoint could not be renewed; it is tried again.",
            "checkpoint reason",
        ),
        _row(
            "spark_worker_python",
            "info",
            "The Python versions of the driver and the executors.",
            "driver executors hint",
        ),
    ),
}

EVENTS: Final[Mapping[str, LogEvent]] = {row.name: row for rows in GROUPS.values() for row in rows}


def problem_of(event: str, level: str, fields: Mapping[str, object]) -> str | None:
    """Return how an event differs from its row of the table; None if it does not."""
    row = EVENTS.get(event)
    if row is None:
        return f"log event {event!r} is not in {__name__}"
    if level not in row.levels:
        return f"log event {event!r} has level {level!r}, its row says {', '.join(row.levels)}"
    missing = [name for name in row.fields if name not in fields]
    unknown = sorted(set(fields) - {*row.fields, *row.optional, *COMMON_FIELDS, "exc_info"})
    if missing or unknown:
        return f"log event {event!r}: missing fields {missing}, fields that its row does not have {unknown}"
    return None
