"""The page of a service's own health: `ottla run --console-port`, in both shells, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from console_kit import Write
from service_console_kit import QUEUE_SERVICE, running_service

from broker_embedded.cluster import EmbeddedCluster
from ottla.asyncapi import page_of_problem


def wait_for(ask: Callable[..., tuple[int, Any]], holds: Callable[[Any], Any]) -> Any:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        status, found = ask("GET", "service")
        assert status == 200, found
        if holds(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"never: {found}")


@pytest.mark.representative("threads")
@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_a_service_shows_its_health_and_is_paused_and_resumed(
    cluster: EmbeddedCluster, served: str, tmp_path: Path, shell: list[str]
) -> None:
    with running_service(cluster.bootstrap_servers, served, tmp_path, "--console-write", *shell) as service:
        ask = service.ask
        found = wait_for(ask, lambda state: len(state["partitions"]) == 2 and state["ready"])
        assert {each["topic"] for each in found["partitions"]} == {served}
        assert ask("POST", "service/pause", {"topic": served, "partition": 1})[0] == 200
        paused = wait_for(ask, lambda state: any(each["paused_for"] for each in state["partitions"]))
        assert [each["partition"] for each in paused["partitions"] if each["paused_for"]] == [1]
        assert ask("POST", "service/resume", {})[0] == 200
        wait_for(ask, lambda state: not any(each["paused_for"] for each in state["partitions"]))
        for wrong in ({"topic": served}, {"topic": "nothing", "partition": 0}, {"topic": served, "partition": -1}):
            status, answer = ask("POST", "service/pause", wrong)
            assert (status, bool(answer["error"]["message"])) == (400, True), wrong


def test_a_record_that_hangs_is_seen(cluster: EmbeddedCluster, served: str, tmp_path: Path, write: Write) -> None:
    with running_service(cluster.bootstrap_servers, served, tmp_path) as service:
        ask = service.ask
        wait_for(ask, lambda state: len(state["partitions"]) == 2)
        write(served, [(b"k", b"poison", ())], partition=0)
        found = wait_for(
            ask, lambda state: any(each["oldest_unfinished_offset"] is not None for each in state["partitions"])
        )
        (stuck,) = [each for each in found["partitions"] if each["oldest_unfinished_offset"] is not None]
        assert stuck["partition"] == 0
        (handler,) = wait_for(ask, lambda state: any(each["runs"] for each in state["handlers"]))["handlers"]
        assert (handler["handler"], handler["runs"]) == ("on_record", 1)
        assert ask("POST", "service/pause", {})[0] == 403, "without --console-write it only shows"
        assert ask("GET", "service", None, Host="evil.example")[0] == 400
        assert ask("GET", "service", None, Authorization="Bearer wrong")[0] == 401


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_a_retry_that_waits_is_shown_with_its_time(
    cluster: EmbeddedCluster, served: str, tmp_path: Path, write: Write, shell: list[str]
) -> None:
    with running_service(cluster.bootstrap_servers, served, tmp_path, *shell) as service:
        ask = service.ask
        wait_for(ask, lambda state: len(state["partitions"]) == 2)
        write(served, [(b"k", b"later", ())], partition=1)
        found = wait_for(ask, lambda state: state["retries"])
        (retry,) = found["retries"]
        assert (retry["topic"], retry["partition"], retry["records"], retry["attempts"]) == (served, 1, 1, 1)
        assert 0 < retry["due_in_ms"] <= 600_000
        assert retry["due"].endswith("Z")
        assert found["retries_waiting"] == 1
        assert [each["retries_waiting"] for each in found["partitions"]] == [0, 1]
        write(served, [(b"k", b"fine", ())], partition=0)
        found = wait_for(ask, lambda state: any(each["budget"] is not None for each in state["handlers"]))
        assert [each["budget"] for each in found["handlers"]] == [7]


@pytest.mark.representative("threads")
@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_the_age_of_the_oldest_lease_of_a_queue_is_shown(
    cluster: EmbeddedCluster, served: str, tmp_path: Path, write: Write, shell: list[str]
) -> None:
    """Kafka's protocol has no request for it: the member that holds the lease is the one that knows."""
    with running_service(cluster.bootstrap_servers, served, tmp_path, *shell, source=QUEUE_SERVICE) as service:
        write(served, [(b"k", b"slow", ()), (b"k", b"slow", ()), (b"k", b"fine", ())], partition=0)
        found = wait_for(service.ask, lambda state: any(each["oldest_age_ms"] >= 1_500 for each in state["leases"]))
        (leases,) = found["leases"]
        assert (leases["group"], leases["in_flight"]) == (f"group-{served}.queue", 2)
        (handler,) = found["handlers"]
        assert handler["runs"] == 2


@pytest.mark.representative("threads")
@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_a_service_shows_its_contract(cluster: EmbeddedCluster, served: str, tmp_path: Path, shell: list[str]) -> None:
    with running_service(cluster.bootstrap_servers, served, tmp_path, *shell) as service:
        status, document = service.ask("GET", "service/asyncapi")
        assert (status, document["asyncapi"], list(document["channels"])) == (
            200,
            "3.0.0",
            [served, "served.dead-letters"],
        )
        status, headers, page = service.page("service/contract")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f"<h3>{served}" in page
        assert headers["content-security-policy"].startswith("sandbox; default-src 'none'; style-src 'unsafe-inline'")
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert service.page("service/contract", Authorization="Bearer wrong")[0] == 401
        assert service.page("service/contract", Host="evil.example")[0] == 400
        assert service.page("service/contract?more=1")[0] == 400


def test_a_type_without_a_schema_is_said_on_the_page_of_the_contract() -> None:
    page = page_of_problem("<b>billing</b>", "Json(<Order>): it has no JSON Schema")
    assert "Json(&lt;Order&gt;): it has no JSON Schema" in page
    assert "<b>" not in page
