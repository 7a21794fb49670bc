"""The pages in a real Chromium: every flow, failing on any message of the browser's console and any foreign request."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from console_browser import FOREIGN, PATIENCE_MS, Opened, expect, menu_of, shows
from console_kit import HOSTILE, TOKEN, Running, Write, running_console
from plan_runs import filled_topic, interrupt_when, moves, moving, replicas

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.config import Settings
from ottla.console.state import ConsoleOptions
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PAGES = ("/", "/topics", "/groups", "/letters", "/access", "/doctor", "/moves", "/nothing-here")
PICTURES = os.environ.get("OTTLA_CONSOLE_PICTURES")
"""A folder that gets a picture of each page."""


@pytest.mark.representative
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_every_page_opens_and_nothing_is_wider_than_the_screen(
    console: Running, opened: Opened, orders: str, billing: str, width: int, scheme: str
) -> None:
    with opened(console, viewport={"width": width, "height": 850}, color_scheme=scheme) as page:
        for path in (*PAGES, f"/topic?name={orders}", f"/topic?name={orders}&tab=partitions", f"/group?name={billing}"):
            page.goto(console.url + path)
            expect(page.locator("main .page")).to_be_visible(timeout=PATIENCE_MS)
            widest = page.locator("html").evaluate("(html) => html.scrollWidth - html.clientWidth")
            assert widest <= 0, path
            assert "Access" in menu_of(page, width)
            if PICTURES:
                name = re.sub(r"[^a-z]+", "-", path.partition("?")[0]).strip("-") or "cluster"
                page.screenshot(path=f"{PICTURES}/console-{name}-{width}-{scheme}.png")


def test_the_token_leaves_the_address_and_the_page_stays_open(console: Running, opened: Opened) -> None:
    with opened(console, "/topics") as page:
        shows(page, "orders")
        assert TOKEN not in page.url
        page.reload()
        shows(page, "orders")
        cookies = page.context.cookies()
        assert all(each["httpOnly"] and each["sameSite"] == "Strict" for each in cookies)


def test_without_the_token_there_is_a_form_for_it(console: Running, browser: Any) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{console.url}/topics")
    page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("not the token of the console", timeout=PATIENCE_MS)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    shows(page, "orders")
    context.close()


def test_under_another_name_the_console_answers_nothing(console: Running, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    answered = page.goto(f"http://{FOREIGN}:{console.port}/#token={TOKEN}")
    assert answered is not None
    assert answered.status == 400
    assert page.locator("script").count() == 0
    context.close()


def test_hostile_records_groups_and_headers_stay_text(
    console: Running, opened: Opened, admin: Admin, orders: str
) -> None:
    admin.apply_reset(admin.plan_reset(HOSTILE, to="latest", topics={orders: None}))
    with opened(console, f"/topic?name={orders}&partitions=0&from=-3") as page:
        row = page.locator("button.record").filter(has_text="onerror")
        row.click()
        shows(page, HOSTILE)
        expect(page.locator(".opened pre").filter(has_text="onerror")).to_have_count(2, timeout=PATIENCE_MS)
        page.goto(f"{console.url}/groups")
        page.get_by_role("link", name=HOSTILE).click()
        expect(page.locator("h1")).to_have_text(HOSTILE, timeout=PATIENCE_MS)
        shows(page, "Partitions")
        assert page.locator("main img, main script").count() == 0
        assert page.title().startswith(HOSTILE)  # had one run, it would be 1 or 2


def test_a_poison_record_is_found_by_an_expression(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, f"/topic?name={orders}") as page:
        page.get_by_label("From").fill("earliest")
        page.get_by_label("Where", exact=True).fill("value.total == 43.5")
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("button.record")).to_have_count(1, timeout=PATIENCE_MS)
        page.locator("button.record").click()
        expect(page.locator(".opened pre:not(.hex)").filter(has_text='"id": 29')).to_have_count(1, timeout=PATIENCE_MS)
        assert "where=value.total" in page.url  # the search can be sent to somebody


def test_a_topic_is_followed_with_a_filter(console: Running, opened: Opened, admin: Admin, write: Write) -> None:
    admin.create_topics({"followed": TopicSpec(partitions=1)})
    with opened(console, "/topic?name=followed") as page:
        page.get_by_label("Where", exact=True).fill('key == "mine"')
        page.get_by_role("button", name="Follow").click()
        expect(page.locator("main")).to_contain_text("following", timeout=PATIENCE_MS)
        for _ in range(600):  # what is written before the tail has begun is not followed
            write("followed", [(b"other", b"passed over", ()), (b"mine", b"shown at once", ())])
            if page.locator("button.record").count():
                break
            page.wait_for_timeout(100)
        shows(page, "shown at once")
        expect(page.locator("main")).not_to_contain_text("passed over at all")
        page.get_by_role("button", name="Stop").click()
        assert page.locator("button.record").filter(has_text="other").count() == 0


def test_the_lag_of_a_group_is_plotted_in_records_and_in_time(
    console: Running, opened: Opened, orders: str, billing: str
) -> None:
    with opened(console, f"/group?name={billing}") as page:
        for title in ("Lag in records, now 303", "How long the oldest waits, now"):
            expect(page.get_by_role("img", name=title).locator("polyline")).to_have_count(1, timeout=PATIENCE_MS)


def test_a_group_is_reset_and_the_reset_undone(writing: Running, opened: Opened, admin: Admin, orders: str) -> None:
    group = "reset-in-a-browser"
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={orders: None}))
    before = admin.describe_groups(group)[0].offsets
    with opened(writing, f"/group?name={group}") as page:
        page.get_by_role("button", name="Reset …").click()
        page.get_by_label("To", exact=True).fill("latest")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Set 3 offsets").click()
        shows(page, "3 offsets are set")
        assert admin.describe_groups(group)[0].offsets != before
        page.get_by_role("button", name="Undo …").click()
        page.get_by_role("button", name="Set 3 offsets").click()
        shows(page, "3 offsets are set")
        assert admin.describe_groups(group)[0].offsets == before


def test_a_letter_is_looked_at_beside_its_record_and_redriven(
    writing: Running, opened: Opened, admin: Admin, write: Write
) -> None:
    topic, dead = "browsed", "browsed.dead-letters"
    admin.create_topics({topic: TopicSpec(partitions=1), dead: TopicSpec(partitions=1)})
    write(topic, [(b"k", b'{"poison": true}', ())])
    reason = DeadLetterReason(kind="failed", error_type="ValueError", message=HOSTILE, attempts=3, group="g")
    letter = build_dead_letter(
        topic=topic,
        partition=0,
        offset=0,
        timestamp_ms=1,
        key=b"k",
        value=b'{"poison": true}',
        headers=[],
        reason=reason,
    )
    write(dead, [(letter.key, letter.value, tuple(letter.headers))])
    with opened(writing, f"/letters/topic?name={dead}") as page:
        shows(page, "ValueError")
        page.locator("button.record").click()
        values = page.locator(".opened pre:not(.hex)").filter(has_text="poison")
        expect(values).to_have_count(2, timeout=PATIENCE_MS)
        shows(page, f"The record it was: {topic}-0@0")
        shows(page, "its retries were made in place")
        page.get_by_role("button", name="Dry run").click()
        shows(page, "1 would be sent")
        page.get_by_role("button", name="Redrive 1").click()
        shows(page, "Done: 1 of 1 sent")
    found = writing.get("records", topic=topic, **{"from": "earliest"})["records"]
    assert len(found) == 2


def test_a_record_is_edited_and_sent_again(writing: Running, opened: Opened, admin: Admin, write: Write) -> None:
    admin.create_topics({"sent-again": TopicSpec(partitions=1)})
    write("sent-again", [(b"k", b'{"total": 1}', (("h", b"1"),))])
    with opened(writing, "/topic?name=sent-again") as page:
        page.locator("button.record").click()
        page.get_by_role("button", name="Edit and send again").click()
        page.get_by_label("Value", exact=True).fill('{"total": 2}')
        page.get_by_role("button", name="Write one record").click()
        expect(page.locator("#said")).to_contain_text("offset 1", timeout=PATIENCE_MS)
    record = writing.get("record", topic="sent-again", partition=0, offset=1)["record"]
    assert (record["key"], record["value"], record["headers"]) == ("k", '{"total": 2}', [{"key": "h", "value": "1"}])


def test_a_finding_is_accepted_until_a_day(kafka: Settings, opened: Opened, admin: Admin, tmp_path: Path) -> None:
    admin.create_topics({"one-copy-only": TopicSpec(partitions=1, replication_factor=1)})
    baseline = tmp_path / "baseline.json"
    choices = ConsoleOptions(may_write=True, folder=tmp_path, baseline=baseline, every_s=1.0)
    with running_console(kafka, choices) as console, opened(console, "/doctor") as page:
        expect(page.locator("li.finding").first).to_be_visible(timeout=PATIENCE_MS)
        if (more := page.get_by_role("button", name=re.compile("more of REP01"))).count():
            more.click()
        finding = page.locator("li.finding").filter(has_text="one-copy-only has 1 replica")
        finding.get_by_role("button", name="Accept until …").click()
        finding.get_by_label("Why").fill("a scratch topic")
        finding.get_by_label("Until").fill("2999-01-31")
        finding.get_by_role("button", name="Accept", exact=True).click()
        expect(finding).to_have_count(0, timeout=PATIENCE_MS)
    assert json.loads(baseline.read_text())["accepted"][0]["subject"] == "one-copy-only"
    admin.delete_topics("one-copy-only")


def test_a_long_list_has_only_the_rows_near_the_window(
    kafka: Settings, opened: Opened, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topics({"many-partitions": TopicSpec(partitions=600, replication_factor=1)})
    admin.apply_reset(admin.plan_reset("reads-many", to="earliest", topics={"many-partitions": None}))
    try:
        with running_console(kafka, ConsoleOptions(folder=tmp_path)) as console:
            for width in (1280, 390):
                view = {"viewport": {"width": width, "height": 850}}
                with opened(console, "/group?name=reads-many", **view) as page:
                    rows = page.get_by_role("table", name="Partitions").locator("tbody tr:not(.room)")
                    expect(rows.first).to_be_visible(timeout=PATIENCE_MS)
                    last = rows.filter(has=page.locator('td[data-title="Partition"]', has_text=re.compile("^599$")))
                    assert last.count() == 0
                    assert rows.count() < 200
                    scroll_until_drawn(page, page.get_by_role("heading", name="Members"), last)
                    assert rows.count() < 200
    finally:
        admin.delete_topics("many-partitions")


def scroll_until_drawn(page: Any, behind: Any, wanted: Any) -> None:
    """Scroll to what stands behind a list until its end is there: heights of rows far away are estimated."""
    for _ in range(1_200):
        behind.scroll_into_view_if_needed()
        if wanted.count():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the end of the list is never drawn")


def test_a_console_that_has_gone_leaves_the_page_with_its_age(kafka: Settings, browser: Any, tmp_path: Path) -> None:
    """The page is alone then: its requests fail, which the browser's console says, so that is not looked at here."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    with running_console(kafka, ConsoleOptions(folder=tmp_path, every_s=0.3)) as console:
        page.goto(f"{console.url}/groups#token={TOKEN}")
        shows(page, "billing")
        page.goto(f"{console.url}/")
        shows(page, "Brokers")
    expect(page.locator("#top .live")).to_contain_text(
        re.compile(r"as of \d+ s ago: the console does not answer"), timeout=PATIENCE_MS
    )
    shows(page, "Brokers")
    context.close()


def test_a_cluster_that_dies_leaves_pages_that_can_be_used(browser: Any, tmp_path: Path) -> None:
    """Its answers are refusals then, which the browser's console says, so that is not looked at here."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    with EmbeddedCluster(brokers=1) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics({"outlived": TopicSpec(partitions=1)})
        kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
        with running_console(kafka, ConsoleOptions(folder=tmp_path, every_s=0.3)) as console:
            page.goto(f"{console.url}/topics#token={TOKEN}")
            shows(page, "outlived")
            cluster.stop()
            expect(page.locator("#top .live")).to_contain_text(re.compile(r"as of \d+ s ago: "), timeout=PATIENCE_MS)
            shows(page, "outlived")
            for name in ("Cluster", "Groups", "Dead letters", "Doctor", "Moves", "Topics"):
                page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
                expect(page.locator("h1")).to_have_text(name, timeout=PATIENCE_MS)
            shows(page, "outlived")
    context.close()


def test_a_plan_is_looked_at(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, "/moves") as page:
        page.get_by_role("button", name="Plan", exact=True).click()
        shows(page, "the fullest broker")
        expect(page.get_by_role("table", name="Brokers before and after")).to_be_visible(timeout=PATIENCE_MS)


def test_a_plan_is_carried_out_throttled_and_cancelled(opened: Opened, tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        filled_topic(admin, cluster.bootstrap_servers, "heavy", on=(2,), partitions=2, records=500)
        kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
        choices = ConsoleOptions(may_write=True, folder=tmp_path, every_s=0.5)
        with running_console(kafka, choices) as console, opened(console, "/moves") as page:
            page.get_by_label("What").select_option("remove-brokers")
            page.get_by_label("Brokers", exact=True).fill("2")
            page.get_by_role("button", name="Plan", exact=True).click()
            page.get_by_label("Throttle, bytes a second").fill("1kB")
            page.get_by_role("button", name=re.compile("^Move ")).click()
            shows(page, "at most 1000 B/s a broker")
            expect(page.get_by_role("table", name="Moves under way").locator("tbody tr")).to_have_count(
                2, timeout=PATIENCE_MS
            )
            page.get_by_label(re.compile("^Throttle of")).fill("2kB")
            page.get_by_role("button", name="Throttle", exact=True).click()
            shows(page, "at most 2.0 KiB/s a broker")
            page.get_by_role("button", name="Cancel", exact=True).click()
            expect(page.locator(".job .badge")).to_have_text("stopped", timeout=PATIENCE_MS)
            shows(page, "Nothing moves.")
        assert replicas(admin, "heavy") == {(2,)}


def test_moves_that_a_command_began_are_throttled_and_cancelled(opened: Opened, tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        topic = filled_topic(admin, cluster.bootstrap_servers, "heavy", partitions=2)
        journal = tmp_path / "journal"
        interrupt_when(
            admin, moves(admin, topic, numbers=range(2)), journal, lambda seen: moving(seen) == 2, throttle=1
        )
        kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
        with running_console(kafka, ConsoleOptions(folder=tmp_path)) as reads, opened(reads, "/moves") as page:
            shows(page, "heavy-1")
            assert page.get_by_role("button", name=re.compile("Cancel|Throttle")).count() == 0
        choices = ConsoleOptions(may_write=True, folder=tmp_path, every_s=0.5, name="prod", asks_name=True)
        with running_console(kafka, choices) as console, opened(console, "/moves") as page:
            page.get_by_label("Rate, bytes a second for each broker").fill("1kB")
            page.get_by_label("Type prod to agree").fill("prod")
            page.get_by_role("button", name="Throttle all").click()
            shows(page, "All moves are throttled to 1000 B/s for each broker")
            page.get_by_role("button", name="Remove the throttle").click()
            expect(page.locator("main")).not_to_contain_text("All moves are throttled", timeout=PATIENCE_MS)
            page.get_by_role("button", name="Cancel heavy-0 …").click()
            shows(page, re.compile("heavy-0 stays on (1, 2|2, 1)"))
            page.get_by_role("button", name="Keep them").click()
            page.get_by_role("button", name="Cancel all …").click()
            page.get_by_role("button", name="Cancel 2 moves").click()
            shows(page, "Nothing moves.")
        assert {frozenset(each) for each in replicas(admin, topic)} == {frozenset({1, 2})}


def test_a_console_that_only_reads_draws_no_buttons_of_changes(
    console: Running, opened: Opened, orders: str, billing: str
) -> None:
    with opened(console, f"/topic?name={orders}") as page:
        page.locator("button.record").first.click()
        shows(page, "Copy as command")
        assert page.get_by_role("button", name="Produce …").count() == 0
        assert page.get_by_role("button", name="Edit and send again").count() == 0
        page.goto(f"{console.url}/group?name={billing}")
        page.get_by_role("button", name="Reset …").click()
        page.get_by_label("To", exact=True).fill("latest")
        page.get_by_role("button", name="Show what would change").click()
        shows(page, "This console only reads")
        assert page.get_by_role("button", name=re.compile("Set .* offsets")).count() == 0


def test_the_keyboard_alone_finds_a_topic(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, "/groups") as page:
        shows(page, "billing")
        page.keyboard.press("Escape")
        page.goto(f"{console.url}/")
        shows(page, "Brokers")
        page.keyboard.press("/")
        page.keyboard.type("orders")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name=orders, exact=True)).to_be_visible(timeout=PATIENCE_MS)
        page.get_by_role("link", name=orders, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(orders, timeout=PATIENCE_MS)
        page.go_back()
        expect(page.locator("h1")).to_have_text("Topics", timeout=PATIENCE_MS)
