"""The link between supervisor and worker, and what is merged of what workers say."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ottla.app.runtime.health_paths import answer_of
from ottla.cli.services.workers_health import merged_body, worker_body, workers_text
from ottla.config import consumer_settings, producer_settings
from ottla.config.worker_names import name_of_worker, number_of_worker
from ottla.errors import ConfigError
from ottla.processes import worker_link
from ottla.processes.supervision import Phase, WorkerState
from ottla.processes.worker_link import WorkerLink
from ottla.telemetry.metrics.merged_text import merged_text


class TestLink:
    @pytest.fixture
    def ends(self) -> Iterator[tuple[WorkerLink, WorkerLink]]:
        own, other = WorkerLink.pair()
        environ = {"LINK": str(other.detach())}
        inherited = WorkerLink.of_environment(environ, "LINK")
        assert inherited is not None
        assert environ == {}
        yield own, inherited
        own.close()
        inherited.close()

    def test_messages_arrive_whole_and_in_order(self, ends: tuple[WorkerLink, WorkerLink]) -> None:
        own, other = ends
        long = {"text": "ü" * 300_000}
        sender = threading.Thread(target=lambda: [other.send(long), other.send({"n": 2})])
        sender.start()
        assert own.receive() == long
        assert own.receive() == {"n": 2}
        sender.join()

    def test_each_side_notices_that_the_other_has_gone(self, ends: tuple[WorkerLink, WorkerLink]) -> None:
        own, other = ends
        other.close()
        assert own.receive() is None
        assert own.send({"n": 1}) is False

    def test_a_worker_that_does_not_read_is_not_waited_for(self, ends: tuple[WorkerLink, WorkerLink]) -> None:
        own, _ = ends
        sent = 0
        while own.send_at_once({"do": "metrics", "id": sent}):
            sent += 1
        assert sent > 10

    @pytest.mark.parametrize("garbage", [b"nonsense\n", b"[1]\n", b"\xff\xfe\n"])
    def test_what_is_no_message_ends_the_link(self, garbage: bytes) -> None:
        own, other = WorkerLink.pair()
        with other:
            other.sendall(garbage)
            assert own.receive() is None
        own.close()

    def test_a_message_without_end_is_not_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(worker_link, "MOST_BYTES", 100)
        own, other = WorkerLink.pair()
        with other:
            other.sendall(b"x" * 200)
            assert own.receive() is None
        own.close()


class TestMetrics:
    def test_samples_of_a_metric_stand_together_with_their_worker(self) -> None:
        text = (
            "# HELP a_total A thing.\n# TYPE a_total counter\n"
            'a_total{x="1",y="b c"} 3.0\na_total 4\n# TYPE b gauge\nb{} 1\n'
        )
        assert merged_text({1: text, 2: text}) == (
            "# HELP a_total A thing.\n# TYPE a_total counter\n"
            'a_total{worker="1",x="1",y="b c"} 3.0\na_total{worker="1"} 4\n'
            'a_total{worker="2",x="1",y="b c"} 3.0\na_total{worker="2"} 4\n'
            '# TYPE b gauge\nb{worker="1"} 1\nb{worker="2"} 1\n'
        )

    def test_a_label_of_ones_own_with_that_name_is_kept_under_another(self) -> None:
        assert merged_text({1: 'a{worker="me",b="x,worker=\\"no\\"",co_worker="c"} 1\n'}) == (
            'a{worker="1",exported_worker="me",b="x,worker=\\"no\\"",co_worker="c"} 1\n'
        )

    def test_prometheus_reads_it(self) -> None:
        client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
        parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
        registry = client.CollectorRegistry()
        client.Counter("jobs", 'Jobs "done", {all}.', ["kind"], registry=registry).labels('a"b,worker="x').inc()
        client.Histogram("took_seconds", "Time.", registry=registry).observe(1)
        text = client.generate_latest(registry).decode()
        body = [{"worker": 1, "ready": True, "starts": 2}, {"worker": 2, "ready": False, "starts": 1}]
        merged = merged_text({1: text, 2: text}) + workers_text(body)
        families = {each.name: each for each in parser.text_string_to_metric_families(merged)}
        samples = [each for each in families["jobs"].samples if each.name == "jobs_total"]
        assert [each.labels for each in samples] == [
            {"worker": "1", "kind": 'a"b,worker="x'},
            {"worker": "2", "kind": 'a"b,worker="x'},
        ]
        assert len(families["took_seconds"].samples) % 2 == 0
        assert [each.value for each in families["ottla_worker_ready"].samples] == [1, 0]
        assert [each.value for each in families["ottla_worker_starts"].samples] == [2, 1]


def state(phase: Phase, *, starts: int = 1) -> WorkerState:
    return WorkerState(2, phase=phase, starts=starts)


READY = {
    "ready": True,
    "alive": True,
    "problems": [],
    "limited": ["slow"],
    "partitions": [{"partition": "orders-0"}],
}


class TestHealth:
    def test_all_ready_is_ready_and_names_who_has_which_partition(self) -> None:
        parts = [worker_body(state(Phase.RUNNING), READY, pid=7, silent_ms=0)] * 2
        status, body = answer_of(merged_body(parts, supervisor_silent_s=0), "/health/ready")
        assert status == 200
        assert body["partitions"] == [{"partition": "orders-0", "worker": 2}] * 2
        assert body["limited"] == ["slow"]
        assert body["workers"][0] == {"worker": 2, "pid": 7, "ready": True, "alive": True, "starts": 1, "problems": []}

    @pytest.mark.parametrize(
        ("phase", "starts", "silent_ms", "report", "problem"),
        [
            (Phase.WAITING, 0, 0, None, "it has not been started"),
            (Phase.WAITING, 3, 0, None, "it has ended, and is started again"),
            (Phase.LOADING, 1, 0, None, "it is starting"),
            (Phase.RUNNING, 1, 0, None, "it has not said yet how it is"),
            (Phase.RUNNING, 1, 7_000, READY, "it has not said for 7 s how it is"),
            (Phase.RUNNING, 1, 0, {**READY, "ready": False, "problems": ["orders-0 stopped"]}, "orders-0 stopped"),
            (Phase.STOPPING, 1, 0, READY, "it is stopping"),
        ],
    )
    def test_the_worker_that_is_not_ready_is_named(
        self, phase: Phase, starts: int, silent_ms: int, report: dict[str, object] | None, problem: str
    ) -> None:
        part = worker_body(state(phase, starts=starts), report, pid=None, silent_ms=silent_ms)
        status, body = answer_of(merged_body([part], supervisor_silent_s=0), "/health/ready")
        assert status == 503
        assert body["problems"] == [f"worker 2: {problem}"]
        assert answer_of(body, "/health/live")[0] == 200, "the supervisor replaces it"

    def test_a_supervisor_that_hangs_is_not_alive(self) -> None:
        body = merged_body([], supervisor_silent_s=11)
        assert answer_of(body, "/health/live")[0] == 503
        assert "the supervisor has not looked" in body["problems"][0]


ENVIRON = {"OTTLA_WORKER": "2", "OTTLA_CONSUMER_GROUP_INSTANCE_ID": "billing-0"}


class TestNames:
    def test_what_identifies_a_process_has_the_number_of_the_worker(self) -> None:
        settings = consumer_settings("a:9092", group_id="billing", environ=ENVIRON)
        assert settings["client.id"] == "ottla-w2"
        assert settings["group.instance.id"] == "billing-0-w2"
        assert settings["group.id"] == "billing"
        again = consumer_settings(settings=settings, environ=ENVIRON)
        assert again["group.instance.id"] == "billing-0-w2", "once"
        found = settings.setting("client.id")
        assert found is not None
        assert found.origin == "default, with the number of OTTLA_WORKER"
        transactional = {"transactional.id": "out", "client.id": "mine"}
        producer = producer_settings("a:9092", settings=transactional, environ={"OTTLA_WORKER": "1"})
        assert (producer["transactional.id"], producer["client.id"]) == ("out-w1", "mine-w1")

    def test_other_processes_keep_their_names(self) -> None:
        assert consumer_settings("a:9092", group_id="billing", environ={})["client.id"] == "ottla"
        assert name_of_worker("pod", {}) == "pod"

    @pytest.mark.parametrize("text", ["", "0", "one", "²", "-1", "1001"])
    def test_a_number_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="OTTLA_WORKER"):
            number_of_worker({"OTTLA_WORKER": text})
