"""Which file of tests a process of the suite takes next.

Long files come first: none of them is left when the other processes are done. Those that start many processes or a JVM
would want ten times the cores of a laptop if all of them were first: few of them run at a time, and what waits for
timers and brokers runs beside them.
"""

from __future__ import annotations

from collections.abc import Collection

SPARK = "tests/spark"
SITE = "tests/docs/site"

ONE_PROCESS = (SPARK, SITE)
"""Folders whose files all run in one process: what they share is started or built once."""

MANY_PROCESSES = (
    SPARK,
    "tests/main_job/test_demo_runs.py",
    "tests/torture/test_torture.py",
    "tests/docs/test_tutorial.py",
    SITE,
    "tests/console/test_console_in_a_browser.py",
    "tests/testing_plugin/test_plugin_options.py",
    "tests/sdk/app/once/test_processes_that_are_killed.py",
    "tests/sdk/typing/test_services_are_checked.py",
    "tests/contract/test_contract_of_placement.py",
    "tests/contract/test_contract_of_generated_plans.py",
    "tests/docs/test_records_page.py",
)
"""What wants more than one core, the longest first."""

AT_A_TIME = 2
"""How many of these run side by side."""

LONG = (
    "tests/cli/operations/test_help.py",
    "tests/sdk/transactions/test_exactly_once.py",
    "tests/sdk/app/once/test_outbox_relays_that_are_killed.py",
    "tests/sdk/schedule/test_scheduler_faults.py",
    "tests/cli/operations/test_broker_dies.py",
    "tests/sdk/app/once/test_columns_that_are_killed.py",
    "tests/sdk/app/once/test_kills_at_each_named_point.py",
    "tests/sdk/schedule/test_scheduler_on_the_broker.py",
    "tests/sdk/app/once/test_exactly_once_handlers.py",
    "tests/admin/placement/test_executor.py",
    "tests/admin/placement/test_real_skew.py",
    "tests/sdk/app/test_exporters.py",
    "tests/sdk/app/test_cli_run.py",
    "tests/sdk/app/once/test_offsets_through_clients.py",
    "tests/sdk/consumer/test_session_under_chaos.py",
    "tests/cli/test_help_of_services.py",
    "tests/cli/operations/test_plan_watch_and_throttle.py",
    "tests/sdk/app/test_stop_signals.py",
    "tests/sdk/producer/test_children_of_processes.py",
    "tests/broker/server/test_process.py",
    "tests/sdk/app/test_retry_topics_killed.py",
    "tests/cli/operations/test_plan_watch_loop.py",
    "tests/broker/simulation/test_one_node.py",
    "tests/broker/simulation/test_three_nodes.py",
    "tests/columnar/test_columnar_decode.py",
    "tests/broker/groups/test_group_kafka_python.py",
    "tests/sdk/app/once/test_claims_that_are_lost.py",
    "tests/docs/test_contributing_pages.py",
)
"""What takes one process long, much of it spent waiting."""


def process_of(test: str) -> str:
    """What one process runs together with this test, by its id: a file, or all files of a folder."""
    file = test.partition("::")[0]
    return next((folder for folder in ONE_PROCESS if file.startswith(f"{folder}/")), file)


def next_file(waiting: Collection[str], running: Collection[str]) -> str:
    """One of `waiting`, which has the files of most tests first and is not empty.

    `running` are the files that processes have been given and have not done.
    """
    may_start_many = sum(file in MANY_PROCESSES for file in running) < AT_A_TIME
    named: tuple[str, ...] = (*MANY_PROCESSES, *LONG) if may_start_many else LONG
    of_one_process = [file for file in waiting if file not in MANY_PROCESSES]
    for file in (*named, *of_one_process):
        if file in waiting:
            return file
    return next(iter(waiting))
