"""Commands whose brokers are all killed while a change waits for its answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from click.testing import CliRunner, Result

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main


def run_until_it_dies(
    cluster: EmbeddedCluster, api: str, line: str, folder: Path, *, is_applied: bool = False
) -> Result:
    """Kill all brokers while a change waits for its answer; they are started again when the command has ended.

    `is_applied`: the brokers have made the change when they die.
    """
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": str(folder / "none.toml")}

    def command() -> Result:
        return CliRunner().invoke(main, [*line.split(), "--timeout", "3"], env=environment)

    def is_the_change(request: object) -> bool:
        return not getattr(request, "validate_only", False)

    with (
        ThreadPoolExecutor(1) as pool,
        cluster.faults.add(api=api, hold=True, after_apply=is_applied, when=is_the_change) as held,
    ):
        running = pool.submit(command)
        held.wait(hits=1, timeout_s=30)
        for broker in cluster.broker_ids:
            cluster.kill(broker)
        ended = running.result(60)
    with ThreadPoolExecutor(len(cluster.broker_ids)) as pool:  # none is up before most of them are
        list(pool.map(cluster.start_broker, cluster.broker_ids))
    return ended


def assert_not_called_done(ended: Result) -> None:
    assert ended.exit_code == 1, ended.output
    assert any(error in ended.stderr for error in ("BrokerUnavailable", "DeliveryError", "DeliveryPending"))
    (problem,) = [each for each in ended.stderr.splitlines() if each.startswith("ottla: ")]
    assert problem
    said = ended.stdout + ended.stderr
    done = (
        ": changed",
        "deleted: ",
        ": created",
        "offset set",
        "offsets set",
        "offset deleted",
        "offsets deleted",
        "cancelled",
        "done: ",
        "copy with",
    )
    assert not [word for word in done if word in said]
