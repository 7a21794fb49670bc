"""The control API over HTTP: what each path does, and what it refuses with which words."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.control import ControlServer
from broker_embedded.cluster.control.server import MOST_WAITING
from broker_embedded.cluster.facts import EmbeddedClusterFacts, NodeState
from broker_embedded.cluster.faults import Disks, Faults, FaultyFileSystem, InvalidFault, Links
from broker_embedded.cluster.live_facts import figures_of, gather
from broker_embedded.cluster.metrics import BrokerFigures
from broker_embedded.common.errors import StartupError
from broker_embedded.common.os_filesystem import OsFileSystem
from ottla import Producer, Queue
from ottla_wire.protocol import ApiKey, ErrorCode


class OneBroker:
    """Stands in for `LocalControl`: a cluster with one broker, whose states are only noted."""

    def __init__(self, cluster: EmbeddedCluster, faults: Faults) -> None:
        self._cluster = cluster
        self.faults = faults
        self.links = Links(nodes=lambda: (1, 2))
        self.disks = Disks(FaultyFileSystem(OsFileSystem()), Faults(), log_dirs=lambda node: [f"/broker-{node}"])
        self.state = NodeState.RUNNING
        self.moved_ms = 0.0

    def facts(self) -> EmbeddedClusterFacts:
        brokers = self._cluster._cluster.brokers
        return gather(
            states={1: self.state},
            brokers=brokers,
            addresses={1: self._cluster.bootstrap_servers},
            voters=[1],
            controller=1,
            faults=self.faults,
            links=self.links,
            disks=self.disks,
        )

    def figures(self) -> Mapping[int, BrokerFigures]:
        return {node: figures_of(broker) for node, broker in self._cluster._cluster.brokers.items()}

    async def kill_broker(self, node: int, *, lose_unsynced: bool = False) -> None:
        self.state = NodeState.KILLED

    async def stop_broker(self, node: int) -> None:
        self.state = NodeState.STOPPED

    async def start_broker(self, node: int) -> None:
        if self.state is NodeState.RUNNING:
            raise InvalidFault("broker 1: found running, wanted killed or stopped")
        if self.state is NodeState.STOPPED:
            raise StartupError("port 9092 on 127.0.0.1 is in use")
        self.state = NodeState.RUNNING

    async def pause_broker(self, node: int) -> None:
        self.state = NodeState.PAUSED

    async def resume_broker(self, node: int) -> None:
        self.state = NodeState.RUNNING

    async def advance_clock(self, ms: float) -> int:
        self.moved_ms += ms
        return int(self.moved_ms)


class Http:
    """Speaks to the control API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = body if isinstance(body, str) or body is None else json.dumps(body)
            connection.request(method, path, body=sent, headers=headers or {})
            response = connection.getresponse()
            assert response.getheader("Content-Type") == "application/json"
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """What comes back for bytes as they are."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65_536):
                received += piece
            return received


@pytest.fixture
def control(cluster: EmbeddedCluster, faults: Faults) -> OneBroker:
    return OneBroker(cluster, faults)


@pytest.fixture
def call(cluster: EmbeddedCluster, control: OneBroker) -> Iterator[Http]:
    assert cluster._loop is not None
    server = ControlServer(control)
    asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)
    yield Http(int(server.url.rpartition(":")[2]))
    asyncio.run_coroutine_threadsafe(server.stop(), cluster._loop).result(30)


def test_the_cluster_is_shown_with_leaders_and_high_watermarks(call: Http, asker: Any) -> None:
    asker.produce("t", {1: b"a"})
    status, shown = call("GET", "/cluster")
    assert status == 200
    assert shown["controller"] == 1
    (broker,) = shown["brokers"]
    assert (broker["id"], broker["state"], broker["fenced"]) == (1, "running", False)
    partitions = {each["partition"]: each for each in shown["partitions"] if each["topic"] == "t"}
    assert [partitions[at]["high_watermark"] for at in range(3)] == [0, 1, 0]
    assert partitions[1] == {
        "topic": "t",
        "partition": 1,
        "leader": 1,
        "leader_epoch": partitions[1]["leader_epoch"],
        "replicas": [1],
        "isr": [1],
        "high_watermark": 1,
        "log_end_offset": 1,
    }


def test_a_fault_is_added_met_listed_and_removed(call: Http, asker: Any) -> None:
    status, fault = call(
        "POST",
        "/faults",
        {"api": "Produce", "topic": "t", "partition": 0, "error": "NOT_LEADER_OR_FOLLOWER", "count": 2},
    )
    assert (status, fault["hits"], fault["armed"], fault["api"]) == (201, 0, True, "PRODUCE")
    assert asker.produce("t", {0: b"a"})[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert call("GET", f"/faults/{fault['id']}")[1]["hits"] == 1
    assert [each["id"] for each in call("GET", "/faults")[1]["faults"]] == [fault["id"]]
    assert call("DELETE", f"/faults/{fault['id']}")[0] == 200
    assert asker.produce("t", {0: b"a"})[0].error_code == 0
    status, missing = call("GET", f"/faults/{fault['id']}")
    assert status == 404
    assert f"found {fault['id']}" in missing["error"]


def test_a_held_request_is_waited_for_and_released(call: Http, asker: Any) -> None:
    _, fault = call("POST", "/faults", {"api": "PRODUCE", "hold": True})
    asker.send_produce("t", {0: b"a"})
    status, waited = call("GET", f"/wait?fault={fault['id']}&hits=1&timeout_ms=30000")
    assert status == 200
    assert waited["waited_ms"] >= 0
    assert call("GET", f"/faults/{fault['id']}")[1]["held"] == 1
    assert call("POST", f"/faults/{fault['id']}/release")[1]["held"] == 0
    assert asker.receive().responses[0].partition_responses[0].error_code == 0
    assert call("DELETE", "/faults") == (200, {"faults": []})


def test_a_broker_goes_through_its_states(call: Http, control: OneBroker) -> None:
    for action, state in (("pause", "paused"), ("resume", "running"), ("kill", "killed"), ("start", "running")):
        assert call("POST", f"/brokers/1/{action}") == (200, {"broker": 1, "state": state})
    status, refused = call("POST", "/brokers/1/start")
    assert (status, refused["error"]) == (400, "broker 1: found running, wanted killed or stopped")
    call("POST", "/brokers/1/stop")
    status, refused = call("POST", "/brokers/1/start")
    assert (status, refused["error"]) == (409, "port 9092 on 127.0.0.1 is in use")
    status, refused = call("POST", "/brokers/7/kill")
    assert (status, refused["found"], refused["wanted"]) == (404, 7, [1])
    status, refused = call("POST", "/brokers/1/reboot")
    assert (status, refused["found"]) == (404, "reboot")


def test_links_are_cut_slowed_isolated_and_healed(call: Http, control: OneBroker) -> None:
    assert call("POST", "/links/cut", {"a": 1, "b": 2, "one_way": True})[0] == 200
    assert control.links.problem(1, 2) is not None
    assert control.links.problem(2, 1) is None
    call("POST", "/links/slow", {"a": 1, "b": 2, "delay_ms": 50})
    assert control.links.delay_ms(2, 1) == 50
    call("POST", "/links/isolate", {"node": 2})
    assert len(call("GET", "/links")[1]["links"]) == 4
    assert call("POST", "/links/heal", {}) == (200, {"links": []})
    for body, error in (
        ({"a": 1}, "b: found none"),
        ({"a": 1, "b": 2, "oneway": True}, "body: found oneway, wanted some of a, b, one_way"),
        ({"a": 1, "b": 9}, "node: found 9, wanted one of 1, 2"),
        ({"a": "1", "b": 2}, "a: found '1', wanted a number"),
        ({"a": 1, "b": 2, "one_way": 1}, "one_way: found 1, wanted true or false"),
    ):
        status, refused = call("POST", "/links/cut", body)
        assert (status, error in refused["error"]) == (400, True), refused


def test_disks_get_faults_and_are_healed(call: Http, control: OneBroker) -> None:
    for kind, extra in (
        ("full", {}),
        ("slow", {"delay_ms": 5}),
        ("fsync-error", {"count": 2}),
        ("torn-write", {}),
        ("offline", {"dir": 0}),
    ):
        status, added = call("POST", f"/disks/{kind}", {"broker": 1, **extra})
        assert (status, added["disks"][0]["kind"]) == (201, kind)
    assert len(call("GET", "/disks")[1]["disks"]) == 5
    assert "dir: found 3" in call("POST", "/disks/full", {"broker": 1, "dir": 3})[1]["error"]
    assert "wanted some of broker, dir" in call("POST", "/disks/full", {"broker": 1, "count": 3})[1]["error"]
    assert call("POST", "/disks/heal", {"broker": 1}) == (200, {"disks": []})


def test_time_is_moved_forward_only(call: Http, control: OneBroker) -> None:
    assert call("POST", "/clock/advance", {"ms": 5_000}) == (200, {"now_ms": 5_000})
    status, refused = call("POST", "/clock/advance", {"ms": -1})
    assert (status, refused["found"]) == (400, -1)


def test_waiting_for_a_leader_an_isr_and_a_high_watermark(call: Http, asker: Any) -> None:
    assert call("GET", "/wait?topic=t&leader=1&isr=1&controller=1&timeout_ms=30000")[0] == 200
    assert call("GET", "/wait?topic=t&partition=2&leader=any&controller=any")[0] == 200
    producing = threading.Timer(0.02, lambda: asker.produce("t", {0: b"a"}))
    producing.start()
    assert call("GET", "/wait?topic=t&partition=0&high_watermark=1&timeout_ms=30000")[0] == 200
    producing.join(30)


def test_a_wait_that_ends_too_early_says_what_was_found_and_wanted(call: Http) -> None:
    status, over = call("GET", "/wait?topic=t&partition=0&isr=1,2&timeout_ms=20")
    assert status == 408
    assert (over["found"], over["wanted"]) == ([1], [1, 2])
    assert over["error"] == "ISR of t-0: found [1] after 20 ms, wanted [1, 2]"
    for query, error in (
        ("topic=t&leader=none", "leader of t-0: found 1"),
        ("topic=no", "no: found no such partition"),
        ("group=g&members=2", "group g: found no such group"),
        ("controller=3", "controller: found 1"),
    ):
        status, over = call("GET", f"/wait?{query}&timeout_ms=1")
        assert (status, error in over["error"]) == (408, True), over


def test_a_group_is_waited_for_until_it_is_stable_with_so_many_members(
    call: Http, cluster: EmbeddedCluster, connect: Callable[..., Any]
) -> None:
    member = connect()
    join = {
        "group_id": "g",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert call("GET", "/wait?topic=__consumer_offsets&leader=any&timeout_ms=1")[0] == 408
    member.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    assert call("GET", "/wait?topic=__consumer_offsets&leader=any&timeout_ms=30000")[0] == 200
    joined = member.call(ApiKey.JOIN_GROUP, 3, join)
    while joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        joined = member.call(ApiKey.JOIN_GROUP, 3, join)
    assert joined.error_code == 0
    assert call("GET", "/wait?group=g&members=1&timeout_ms=1")[0] == 408
    sync = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assignment = [{"member_id": joined.member_id, "assignment": b""}]
    assert member.call(ApiKey.SYNC_GROUP, 3, {**sync, "assignments": assignment}).error_code == 0
    assert call("GET", "/wait?group=g&members=1&timeout_ms=30000")[0] == 200
    assert call("GET", "/wait?group=g&state=stable&timeout_ms=30000")[0] == 200


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "wait: found no condition"),
        ("leader=1", "topic: found none beside leader"),
        ("partition=1", "topic: found none beside partition 1"),
        ("members=1", "group: found none"),
        ("fault=1", "fault: found only one of fault and hits"),
        ("topic=t&isr=one", "isr: found 'one', wanted a number"),
        ("topic=t&leadr=1", "query: found leadr, wanted some of"),
        ("fault=99&hits=1", "fault: found 99"),
    ],
)
def test_a_wait_for_nothing_sensible_is_refused(call: Http, query: str, error: str) -> None:
    status, refused = call("GET", f"/wait?{query}")
    assert (status, error in refused["error"]) == (400, True), refused


def test_a_partition_is_explained(call: Http, faults: Faults) -> None:
    faults.add(api="PRODUCE", topic="t", hold=True)
    status, explained = call("GET", "/explain?topic=t&partition=0")
    assert status == 200
    assert explained["sentences"][0].startswith("t-0: leader 1 ")
    assert "Fault 1 is armed: PRODUCE topic=t: hold=True" in explained["sentences"][1]
    assert "topic: found none" in call("GET", "/explain")[1]["error"]
    assert "has partitions 0 to 2" in call("GET", "/explain?topic=t&partition=9")[1]["sentences"][0]


def test_what_a_share_group_holds_is_explained(call: Http, cluster: EmbeddedCluster) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, partition=1)
    with Queue("t", group="held", bootstrap_servers=cluster.bootstrap_servers, concurrency=2) as queue:
        first, second = queue.take(30), queue.take(30)
        assert first is not None
        assert second is not None
        sentences = call("GET", "/explain?topic=t&partition=1&offset=0&group=held")[1]["sentences"]
        assert "Record 0 is delivered: member " in sentences[-1]
        assert "this is delivery 1 of " in sentences[-1]
        assert second.accept()
        shown = call("GET", "/shares?group=held")[1]["partitions"]
        (found,) = [each for each in shown if each["partition"] == 1]
        assert (found["topic"], found["lowest_lease"]) == ("t", 0)
        assert found["highest_delivery_count"] == 1
        assert len(found["members"]) == found["sessions"] == 1
        assert call("GET", "/shares?group=other")[1]["partitions"] == []
    assert "offset: found 'x'" in call("GET", "/explain?topic=t&offset=x")[1]["error"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::2]"])
def test_a_name_that_only_points_here_is_refused(call: Http, host: str) -> None:
    status, refused = call("POST", "/brokers/1/kill", headers={"Host": host})
    assert status == 421
    assert "wanted a loopback address" in refused["error"]
    assert call("GET", "/cluster")[1]["brokers"][0]["state"] == "running"


def test_a_page_of_another_origin_is_refused(call: Http) -> None:
    assert call("POST", "/brokers/1/kill", headers={"Origin": "https://evil.example"})[0] == 403
    assert call("POST", "/brokers/1/kill", headers={"Origin": "null"})[0] == 403
    assert call("GET", "/cluster", headers={"Origin": "http://localhost:3000"})[0] == 200
    assert call("GET", "/cluster", headers={"Host": "localhost:1"})[0] == 200
    assert call("GET", "/cluster", headers={"Host": "[::1]:1"})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/nothing", None, 404, "path: found /nothing, wanted one of cluster, faults"),
        ("GET", "/", None, 404, "path: found /"),
        ("PUT", "/faults", None, 405, "method: found PUT, wanted GET, POST, DELETE"),
        ("GET", "/brokers/1/kill", None, 405, "method: found GET, wanted POST"),
        ("GET", "/cluster/1", None, 404, "path: found /cluster/1"),
        ("POST", "/faults", "{", 400, "body: not JSON"),
        ("POST", "/faults", "[]", 400, "body: found list, wanted an object"),
        ("POST", "/faults", {"api": "PRODUCE"}, 400, "action: found nothing"),
        ("GET", "/faults/one", None, 400, "fault: found 'one', wanted a number"),
        ("POST", "/disks/melted", {"broker": 1}, 404, "action: found melted"),
    ],
)
def test_what_is_not_served_is_refused_with_what_would_be(
    call: Http, method: str, path: str, body: Any, status: int, error: str
) -> None:
    found, refused = call(method, path, body)
    assert (found, error in refused["error"]) == (status, True), refused


def test_what_is_not_http_is_refused_and_harms_nothing(call: Http) -> None:
    assert call.raw(b"hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert call.raw(b"GET /cluster HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")
    for length in ("-1", "x", "9999999999"):
        head = f"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        assert call.raw(head.encode()).startswith(b"HTTP/1.1 400 ")
    assert call("GET", "/cluster")[0] == 200


def test_a_port_that_is_taken_is_said_to_be(cluster: EmbeddedCluster, control: OneBroker) -> None:
    assert cluster._loop is not None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = ControlServer(control, port=taken.getsockname()[1])
        with pytest.raises(StartupError, match="in use"):
            asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)


DEEP = "[" * 100_000
HUGE = 10**400


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/faults", DEEP),
        ("POST", "/faults", '{"error": ' + DEEP),
        ("POST", "/faults", {"error": "NOT_LEADER_OR_FOLLOWER", "api": ["PRODUCE"]}),
        ("POST", "/faults", {"error": {"a": 1}}),
        ("POST", "/faults", {"api": "PRODUCE", "delay_ms": HUGE}),
        ("POST", "/faults", {"api": "PRODUCE", "hold": "yes"}),
        ("POST", "/faults", {"api": "PRODUCE", "disconnect": [1]}),
        ("POST", "/faults", {"api": "FETCH", "corrupt": "all"}),
        ("POST", "/faults", {"api": "FETCH", "corrupt": {"position": "first"}}),
        ("POST", "/faults", {"api": HUGE, "disconnect": True}),
        ("POST", "/faults", {"error": HUGE}),
        ("POST", "/faults", {"error": -HUGE}),
        ("POST", "/faults", {"disconnect": True, "count": HUGE}),
        ("POST", "/links/slow", {"a": 1, "b": 2, "delay_ms": HUGE}),
        ("POST", "/links/cut", {"a": HUGE, "b": 2}),
        ("POST", "/disks/slow", {"broker": 1, "delay_ms": HUGE}),
        ("POST", "/disks/slow", {"broker": 1, "delay_ms": -1}),
        ("POST", "/disks/full", {"broker": 1, "dir": HUGE}),
        ("POST", "/disks/torn-write", {"broker": 1, "count": -HUGE}),
        ("POST", "/clock/advance", {"ms": HUGE}),
        ("GET", f"/wait?topic=t&timeout_ms={'9' * 5000}", None),
        ("GET", f"/wait?fault={'9' * 30}&hits=1&timeout_ms=1", None),
        ("GET", f"/faults/{'9' * 5000}", None),
        ("GET", "/faults/\u00b2".encode().decode("latin-1"), None),
        ("POST", f"/brokers/{'9' * 5000}/kill", None),
        ("GET", "/explain?topic=t&partition=-99999999999999999999", None),
    ],
)
def test_a_bad_request_is_told_what_is_wrong_with_it(call: Http, method: str, path: str, body: Any) -> None:
    target = path.encode("latin-1").decode("latin-1")
    content = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
    answer = call.raw(head.encode("latin-1") + content)
    status = int(answer.split(b" ", 2)[1])
    assert 400 <= status < 500, answer[:500]
    assert b'"error"' in answer


@pytest.mark.parametrize(
    "head",
    [
        "GET http://[ HTTP/1.1\r\nHost: localhost",
        "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[",
        "GET / HTTP/1.1\r\nHost: [",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \xb2",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + "9" * 5000,
        "GET //[::1 HTTP/1.1\r\nHost: localhost",
    ],
)
def test_a_head_that_cannot_be_read_is_a_bad_request(call: Http, head: str) -> None:
    answer = call.raw(head.encode("latin-1") + b"\r\n\r\n")
    assert 400 <= int(answer.split(b" ", 2)[1]) < 500, answer


@pytest.mark.parametrize(
    "sent", [b"", b"GET /cluster HT", b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_client_that_does_not_finish_its_request_is_cut_off(
    cluster: EmbeddedCluster, control: OneBroker, sent: bytes
) -> None:
    assert cluster._loop is not None
    server = ControlServer(control, patience_s=0.2)
    asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(sent)
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
    asyncio.run_coroutine_threadsafe(server.stop(), cluster._loop).result(30)


def test_half_requests_take_no_room_from_whole_ones(cluster: EmbeddedCluster, control: OneBroker) -> None:
    assert cluster._loop is not None
    server = ControlServer(control, patience_s=3_600)
    asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)
    port = int(server.url.rpartition(":")[2])
    with ExitStack() as held:
        first, *_ = [
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(MOST_WAITING + 50)
        ]
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as asking:
            asking.request("GET", "/links")
            assert asking.getresponse().status == 200
        with suppress(ConnectionResetError):
            assert first.recv(1) == b""
    asyncio.run_coroutine_threadsafe(server.stop(), cluster._loop).result(30)


def test_a_client_that_does_not_hang_up_after_its_answer_is_cut_off(
    cluster: EmbeddedCluster, control: OneBroker
) -> None:
    assert cluster._loop is not None
    server = ControlServer(control, patience_s=0.2)
    asyncio.run_coroutine_threadsafe(server.start(), cluster._loop).result(30)
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(b"GET /faults HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deadline = time.monotonic() + 30
        while server._serving or not connection.recv(65_536, socket.MSG_PEEK):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    asyncio.run_coroutine_threadsafe(server.stop(), cluster._loop).result(30)
