"""The console's answers over HTTP, from a real cluster, without a browser."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from console_kit import HOSTILE, TOKEN, Running, Write, running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.config import Settings
from ottla.console.guard import MOST_BODY_BYTES
from ottla.console.masks import Masks
from ottla.console.pages import READS, WRITES
from ottla.console.state import ConsoleOptions


def printed(cluster: EmbeddedCluster, *arguments: str) -> Any:
    """What a command prints as JSON."""
    ended = CliRunner().invoke(main, [*arguments, "-b", cluster.bootstrap_servers, "--format", "json"])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_every_response_carries_the_headers_of_safety(console: Running) -> None:
    for path in ("/", "/static/app.js", "/api/topics", "/api/nothing", "/topic?name=x", "/static/nothing.js"):
        headers = console.request("GET", path).headers
        assert "script-src 'self'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_without_token_the_page_is_there_and_the_facts_are_not(console: Running) -> None:
    assert console.request("GET", "/", headers={}).status == 200
    for name in (*READS, *WRITES, "session", "tail"):
        assert console.request("GET", f"/api/{name}", headers={}).status == 401, name


def test_a_login_gives_a_cookie_that_scripts_and_other_sites_do_not_get(console: Running) -> None:
    answered = console.request("POST", "/api/login", headers={"X-Ottla-Token": TOKEN})
    assert answered.status == 200
    cookie = answered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert console.request("GET", "/api/topics", headers={"Cookie": cookie.partition(";")[0]}).status == 200
    assert console.request("POST", "/api/login", headers={"X-Ottla-Token": "wrong"}).status == 401


def test_a_foreign_host_is_refused_by_the_server(console: Running) -> None:
    answered = console.request(
        "GET", "/api/topics", headers={"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"}
    )
    assert answered.status == 400
    assert "evil.example" in answered.json["error"]["message"]


def test_the_cluster_is_what_the_command_prints(console: Running, cluster: EmbeddedCluster) -> None:
    found = console.get("cluster")
    told = printed(cluster, "cluster", "brokers")["items"]
    assert [{name: each[name] for name in told[0] if name != "bytes"} for each in found["brokers"]] == [
        {name: value for name, value in each.items() if name != "bytes"} for each in told
    ]
    shown = printed(cluster, "cluster", "show")
    assert {name: found["cluster"][name] for name in ("cluster_id", "brokers", "controller")} == {
        name: shown[name] for name in ("cluster_id", "brokers", "controller")
    }
    assert found["state"]["problem"] is None


def test_topics_are_filtered_sorted_and_paged_on_the_server(console: Running, orders: str) -> None:
    names = [each["topic"] for each in console.get("topics", match=orders)["items"]]
    assert orders in names
    assert console.get("topics", match="/^ord.*s$/")["items"][0]["topic"] == orders
    assert console.get("topics", match="ord*")["items"][0]["topic"] == orders
    assert console.get("topics", match="/(([a-z]+)*)*!/")["total"] == 0
    assert console.get("topics", match="nothing-of-it")["total"] == 0
    everything = console.get("topics", internal="true", size=1)
    assert len(everything["items"]) == 1
    assert everything["total"] > 1
    by_records = [each["records"] for each in console.get("topics", sort="records")["items"]]
    assert by_records == sorted(by_records, reverse=True)


def test_a_topic_is_what_the_command_prints(console: Running, cluster: EmbeddedCluster, orders: str) -> None:
    found = console.get("topic", name=orders)
    told = printed(cluster, "topics", "show", orders, "--settings")
    assert found["settings"] == told["settings"]
    assert found["topic"]["id"] == told["id"]
    assert found["settings"]["retention.ms"] == {
        "value": "86400000",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "sensitive": False,
    }
    partitions = [{k: v for k, v in each.items() if k != "bytes"} for each in found["partitions"]["items"]]
    assert partitions == [{k: v for k, v in each.items() if k != "bytes"} for each in told["partition_list"]]


def test_a_topic_that_is_new_is_found_at_once(console: Running, admin: Admin) -> None:
    admin.create_topics({"just-made": None})
    assert console.get("topic", name="just-made")["topic"]["topic"] == "just-made"
    admin.delete_topics("just-made")


def test_records_are_those_of_the_command_byte_for_byte(
    console: Running, cluster: EmbeddedCluster, orders: str
) -> None:
    lines = CliRunner().invoke(
        main, ["consume", orders, "-b", cluster.bootstrap_servers, "--format", "json", "-p", "0"]
    )
    told = [json.loads(line) for line in lines.stdout.splitlines()]
    found = console.get("records", topic=orders, partitions="0", limit=500, **{"from": "earliest"})
    assert found["is_whole"]
    assert len(found["records"]) == len(told)
    by_offset = {each["offset"]: each for each in found["records"]}
    for record in told:
        mine = by_offset[record["offset"]]
        assert {name: mine.get(name) for name in record} == record


def test_hostile_bytes_stay_what_they_are(console: Running, orders: str) -> None:
    found = console.get("records", topic=orders, partitions="0", **{"from": "-3"})["records"]
    hostile, binary, tombstone = sorted(found, key=lambda each: each["offset"])
    assert (hostile["key"], hostile["value"], hostile["headers"][0]["key"]) == (HOSTILE, HOSTILE, HOSTILE)
    assert binary["value_base64"] == "AAH+IGJpbmFyeQ=="
    assert binary["value_bytes"] == 10
    assert (tombstone["value"], tombstone["value_bytes"]) == (None, None)
    answered = console.request("GET", f"/api/records?topic={orders}&from=-3")
    assert answered.headers["content-type"] == "application/json"


def test_a_schema_in_a_file_decodes_the_values_of_its_topic(
    kafka: Settings, admin: Admin, write: Write, tmp_path: Path
) -> None:
    """And of no other topic; what is not of the schema stays bytes, with the reason."""
    schema = tmp_path / "pair.avsc"
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    schema.write_text(json.dumps({"type": "record", "name": "Pair", "fields": fields}))
    admin.create_topics(dict.fromkeys(("pairs", "no-pairs"), TopicSpec(partitions=1)))
    for topic in ("pairs", "no-pairs"):
        write(topic, [(b"k", b"\x0e\x04\xc3\xb6", ()), (b"k", b"\xff", ())])
    with running_console(kafka, ConsoleOptions(folder=tmp_path, schemas={"pairs": schema})) as console:
        whole, broken = console.get("records", topic="pairs", where="value.a == 7 or offset == 1")["records"]
        assert (whole["value_as"], whole["value"]) == ("avro", {"a": 7, "b": "ö"})
        assert broken["value_base64"] == "/w=="
        assert broken["value_error"]
        assert console.get("record", topic="pairs", partition=0, offset=0)["record"]["value"] == {"a": 7, "b": "ö"}
        assert "value_as" not in console.get("records", topic="no-pairs")["records"][0]
        assert console.get("session")["schemas"] == {"pairs": str(schema)}


def test_the_newest_records_of_all_partitions_together(console: Running, orders: str) -> None:
    found = console.get("records", topic=orders, limit=5, **{"from": "-100"})
    assert len(found["records"]) == 5
    everything = console.get("records", topic=orders, limit=500, **{"from": "earliest"})["records"]
    assert [each["timestamp"] for each in found["records"]] == [each["timestamp"] for each in everything[-5:]]


def test_a_search_says_how_far_it_came_and_goes_on_from_there(console: Running, orders: str) -> None:
    seen: list[tuple[int, int]] = []
    start: str | None = "earliest"
    while start:
        found = console.get("records", topic=orders, where="value.total > 30", limit=40, **{"from": start})
        seen += [(each["partition"], each["offset"]) for each in found["records"]]
        assert found["scanned"] <= found["total"]
        start = found["next"]
        assert (found["ended_by"] == "end") == found["is_whole"] or start is None
    assert len(seen) == len(set(seen)) == 279  # the totals of 21 to 299


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"where": "value.total >"}, "character"),
        ({"grep": "("}, "regular expression"),
        ({"grep": "(?=total)"}, "look-around"),
        ({"from": "yesterday-ish"}, "earliest"),
        ({"until": "0:x"}, "earliest"),
        ({"partitions": "9"}, "partition 9"),
        ({"partitions": "0-99999999999"}, "partitions"),
        ({"limit": "501"}, "1 to 500"),
        ({"limit": "many"}, "whole number"),
        ({"limit": ["1", "2"]}, "limit"),
        ({"as": "cobol"}, "auto"),
        ({"as": "avro"}, "schema"),
        ({"header": "=x"}, "NAME=VALUE"),
        ({"bogus": "1"}, "bogus"),
        ({"uncommitted": "perhaps"}, "true or false"),
        ({"key": "x" * 10_001}, "10,000"),
    ],
)
def test_a_bad_question_gets_a_clear_answer(console: Running, orders: str, params: dict[str, Any], told: str) -> None:
    status, message = console.refused("records", topic=orders, **params)
    assert (status, told in message) == (400, True), message


def test_every_endpoint_answers_bad_input_clearly(console: Running) -> None:
    for name in (*READS, "session", "tail"):
        for path in (
            f"/api/{name}?there-is-no-such=1",
            f"/api/{name}?name=%ff%00&topic=%ff&group=%ff",
            f"/api/{name}?page=-1",
        ):
            answered = console.request("GET", path)
            assert answered.status < 500 or answered.status in (502, 503), (path, answered.content)
            if answered.status >= 400:
                assert answered.json["error"]["message"], path


WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"there-is-no-such": 1},
    {"plan": "x"},
    {"plan": 10**30},
    {"plan": -1},
    {"plan": True},
    {"plan": 2**52},
    {"id": [], "throttle": 5},
    {"id": 4711, "throttle": "1MB"},
    {"content": {"a": 1}},
    {"content": "[" * 5_000},
    {"topic": {"a": 1}, "record": 1},
    {"topic": "\x00", "record": {"value": "v"}},
    {"on": ["brokers"], "action": 1, "node": "x"},
    {"id": "\ud800", "subject": None},
    {"confirm": [1]},
)


@pytest.mark.parametrize("name", WRITES)
def test_every_change_answers_bad_input_clearly_and_changes_nothing(
    writing: Running, tmp_path: Path, name: str
) -> None:
    for body in WRONG:
        answered = writing.post(name, **body)
        assert 400 <= answered.status < 500, (body, answered.status, answered.content)
        assert answered.json["error"]["message"], body
    for path in (f"/api/{name}?a=1", f"/api/{name}/more", f"/api/{name}%00"):
        assert writing.request("PUT", path).status == 405
    assert not list(tmp_path.iterdir()), "nothing was changed, so nothing is in the audit file"


ASKED: dict[str, dict[str, Any]] = {
    "topic": {"name": "orders"},
    "topic/groups": {"name": "orders"},
    "records": {"topic": "orders"},
    "records/export": {"topic": "orders"},
    "record": {"topic": "orders", "partition": 0, "offset": 0},
    "group": {"name": "billing"},
    "group/reset": {"group": "billing", "to": "latest"},
    "letters": {"name": "orders.dead-letters"},
    "letter": {"name": "orders.dead-letters", "partition": 0, "offset": 0},
    "letters/redrive": {"name": "orders.dead-letters"},
    "embedded/explain": {"topic": "orders", "partition": 0},
    "schema": {"subject": "orders-value"},
    "schema/diff": {"subject": "orders-value", "from": 1, "to": 2},
    "schema/delete": {"subject": "orders-value"},
    "schema/level": {"level": "FULL"},
}
"""What the pages ask for at least."""


def test_a_dead_cluster_leaves_every_page_an_answer(tmp_path: Path) -> None:
    """Nobody listens at the address, nor at that of the registry: each question gets the reason, none hangs, and none
    is a mistake of ours."""
    kafka = cluster_settings("127.0.0.1:1", {}, environ={})
    declared = tmp_path / "cluster.toml"
    declared.write_text("[topics.orders]\n")
    choices = ConsoleOptions(folder=tmp_path, registry="http://127.0.0.1:1", declared=(declared,))
    with running_console(kafka, choices) as running, ThreadPoolExecutor(8) as at_once:
        names = [*READS, "tail"]
        paths = [
            f"/api/{name}?{urlencode(ASKED.get(name, {'topic': 'x'} if name == 'tail' else {}))}" for name in names
        ]
        for name, answered in zip(names, at_once.map(lambda path: running.request("GET", path), paths), strict=True):
            expected = (200,) if name == "jobs" else (400,) if name.startswith("embedded") else (502, 503)
            assert answered.status in expected, (name, answered.status, answered.content)
            if answered.status != 200:
                assert answered.json["error"]["message"], name
        assert running.request("GET", "/topics").status == 200
        assert running.get("session")["bootstrap_servers"] == "127.0.0.1:1"


def test_what_is_not_there_is_said(console: Running) -> None:
    assert console.refused("topic", name="no-such-topic")[0] == 404
    assert console.refused("records", topic="no-such-topic")[0] == 404
    assert console.refused("group", name="no-such-group")[0] == 404
    assert console.refused("record", topic="orders", partition=0, offset=10**9)[0] == 400
    assert console.refused("there-is-no-such-thing")[0] == 404


def test_one_record_is_whole_with_its_bytes(console: Running, orders: str) -> None:
    record = console.get("record", topic=orders, partition=1, offset=0)["record"]
    assert json.loads(record["value_pretty"]) == json.loads(record["value"])
    assert record["value_raw"]


def test_a_long_value_is_cut_in_a_list_and_whole_in_its_own_answer(
    console: Running, admin: Admin, write: Write
) -> None:
    admin.create_topics({"long-values": None})
    write("long-values", [(b"k", b'{"text": "' + "ä".encode() * 40_000 + b'"}', (("h", b"x" * 9_000),))], partition=0)
    (short,) = console.get("records", topic="long-values")["records"]
    assert short["value_cut"]
    assert short["value_bytes"] == 80_012
    assert "value_base64" not in short  # it is cut between characters
    assert len(short["value"]) <= 4_000
    whole = console.get("record", topic="long-values", partition=0, offset=0)["record"]
    assert len(whole["value"]) == 40_012


def test_groups_and_their_lag(console: Running, cluster: EmbeddedCluster, billing: str, orders: str) -> None:
    found = console.get("groups", match=billing)["items"]
    assert found == printed(cluster, "groups", "list", billing, "--lag")["items"]
    group = console.get("group", name=billing)
    told = printed(cluster, "groups", "show", billing)
    assert {name: group[name] for name in told if name not in ("schema", "partitions")} == {
        name: value for name, value in told.items() if name not in ("schema", "partitions")
    }
    assert all(each["age_ms"] >= 0 for each in group["partitions"] if each["lag"])
    assert [each["group"] for each in console.get("topic/groups", name=orders)["items"]].count(billing) == 1
    assert console.get("groups", sort="lag")["items"][0]["lag"] >= found[0]["lag"]


def test_a_reset_is_shown_done_and_undone(writing: Running, admin: Admin, orders: str, tmp_path: Path) -> None:
    group = "reset-and-undone"
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={orders: None}))
    before = admin.describe_groups(group)[0].offsets
    shown = writing.get("group/reset", group=group, to="latest")
    assert shown["changes"] == 3
    assert admin.describe_groups(group)[0].offsets == before, "a preview changes nothing"
    done = writing.post("group/reset", plan=shown["plan"])
    assert done.status == 200, done.content
    assert admin.describe_groups(group)[0].offsets != before
    assert Path(done.json["undo_file"]).parent == tmp_path
    (line,) = [json.loads(line) for line in (tmp_path / "ottla-console-audit.jsonl").read_text().splitlines()]
    assert (line["what"], line["subject"]) == ("groups.reset", group)
    assert writing.post("group/reset", plan=shown["plan"]).status == 400, "nothing is done twice"
    back = writing.post("group/restore", content=done.json["undo"])
    assert writing.post("group/reset", plan=back.json["plan"]).status == 200
    assert admin.describe_groups(group)[0].offsets == before


def test_a_reset_that_is_out_of_date_is_refused(writing: Running, admin: Admin, orders: str) -> None:
    group = "reset-too-late"
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={orders: None}))
    shown = writing.get("group/reset", group=group, to="latest")
    admin.apply_reset(admin.plan_reset(group, shift=5))
    refused = writing.post("group/reset", plan=shown["plan"])
    assert refused.status == 400
    assert "plan again" in refused.json["error"]["message"]


def test_a_reset_without_a_place_for_its_audit_is_not_done(
    kafka: Settings, admin: Admin, orders: str, tmp_path: Path
) -> None:
    group = "reset-without-audit"
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={orders: None}))
    before = admin.describe_groups(group)[0].offsets
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path / "not-there")) as running:
        shown = running.get("group/reset", group=group, to="latest")
        refused = running.post("group/reset", plan=shown["plan"])
    assert refused.status == 400
    assert "nothing was changed" in refused.json["error"]["message"]
    assert admin.describe_groups(group)[0].offsets == before


def test_a_console_that_only_reads_changes_nothing(console: Running, billing: str) -> None:
    shown = console.get("group/reset", group=billing, to="latest")
    for name in WRITES:
        refused = console.post(name, plan=shown["plan"])
        assert refused.status == 403, name
        assert "--write" in refused.json["error"]["message"]
    assert console.get("session")["write_token"] is None


def test_bodies_that_are_no_object_are_refused(writing: Running) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"plan": 1e400}', b'{"plan": "1' + b"0" * 50 + b'"}'):
        answered = writing.request("POST", "/api/group/reset", headers=headers, body=body)
        assert answered.status == 400, body[:20]
        assert answered.json["error"]["message"]
    answered = writing.request("POST", "/api/group/reset", headers=headers, body=b" " * (MOST_BODY_BYTES + 1))
    assert answered.status == 400


def test_a_tail_tells_what_comes(console: Running, orders: str, write: Write) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    try:
        connection.request(
            "GET", f"/api/tail?topic={orders}&grep=followed", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        response = connection.getresponse()
        assert response.getheader("content-type", "").startswith("text/event-stream")
        assert json.loads(response.readline().removeprefix(b"data: ")) == {"positions": 3}
        write(orders, [(b"k", b"passed over", ()), (b"k", b"followed", ())], partition=1)
        found: list[Any] = []
        while not found:
            line = response.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                found = json.loads(line.removeprefix(b"data: "))["records"]
        assert [each["value"] for each in found] == ["followed"]
    finally:
        connection.close()


def test_masked_fields_never_leave_the_process(kafka: Settings, orders: str, tmp_path: Path) -> None:
    masks = Masks(["value.total", "headers.null", "key"])
    with running_console(kafka, ConsoleOptions(masks=masks, folder=tmp_path)) as running:
        found = running.get("records", topic=orders, limit=500, **{"from": "earliest"})["records"]
        assert {each["key"] for each in found if each["key"] is not None} == {"(masked)"}
        totals = {json.loads(each["value"])["total"] for each in found if (each.get("value") or "").startswith('{"id"')}
        assert totals == {"(masked)"}
        # A value that is no JSON cannot be looked into.
        assert HOSTILE not in {each.get("value") for each in found}
        assert not running.get("records", topic=orders, where="value.total > 0", **{"from": "earliest"})["records"]
        record = running.get("record", topic=orders, partition=1, offset=0)["record"]
        assert "(masked)" in record["value_pretty"]
        import base64

        assert b'"(masked)"' in base64.b64decode(record["value_raw"])


def test_values_that_are_not_shown_cannot_be_searched_either(kafka: Settings, orders: str, tmp_path: Path) -> None:
    with running_console(kafka, ConsoleOptions(masks=Masks(hides_values=True), folder=tmp_path)) as running:
        found = running.get("records", topic=orders, **{"from": "earliest"})["records"]
        assert {each["value"] for each in found} <= {"(masked)", None}
        assert max(each["value_bytes"] for each in found if each["value"]) > 10
        assert not running.get("records", topic=orders, grep="total", **{"from": "earliest"})["records"]


def test_a_cluster_that_dies_leaves_the_last_facts(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1) as dying:
        kafka = cluster_settings(dying.bootstrap_servers, {}, environ={})
        with Admin(dying.bootstrap_servers) as made:
            made.create_topics({"last-words": None})
        with running_console(kafka, ConsoleOptions(folder=tmp_path, every_s=0.2)) as running:
            assert running.get("topics")["items"]
            dying.stop()
            while running.get("topics")["state"]["problem"] is None:
                pass
            found = running.get("topics")
            assert [each["topic"] for each in found["items"]] == ["last-words"]
            assert running.refused("groups")[0] in (502, 503)
            assert running.get("session")["version"]
