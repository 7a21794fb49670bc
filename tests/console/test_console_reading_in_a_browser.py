"""How the pages behave for whoever reads them, in a real Chromium: names, what stays under the cursor, hidden tabs."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
from console_browser import PATIENCE_MS, Opened, expect, shows
from console_kit import HOSTILE, Running, Write

from ottla.admin import Admin, TopicSpec
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

NAMELESS = """(html) => {
  const wanted = "button, a[href], input, select, textarea, [role=img], table, section";
  const named = (each) => (each.getAttribute("aria-label") || "").trim() || (each.labels && each.labels.length)
    || (each.tagName === "TABLE" ? each.caption : /^(BUTTON|A)$/.test(each.tagName) && each.textContent.trim());
  return [...html.querySelectorAll(wanted)].filter((each) => !named(each)).map((each) => each.outerHTML.slice(0, 200));
}"""
PERMISSIONS = ["clipboard-read", "clipboard-write"]
LEVELS = """(html) => [...html.querySelectorAll("h1, h2, h3, h4")].map((each) => Number(each.tagName[1]))"""
LOADING = re.compile("(Reading|Asking|Looking|Examining).* …|Searching …|Loading …")


def test_everything_that_can_be_used_has_a_name(
    writing: Running, opened: Opened, admin: Admin, write: Write, orders: str, billing: str
) -> None:
    a_letter(admin, write, "named.dead-letters", topic=orders)
    places = ["/", "/topics", "/groups", "/letters", "/access", "/doctor", "/moves", f"/group?name={billing}"]
    places += [f"/topic?name={orders}&tab={tab}" for tab in ("records", "partitions", "settings", "groups")]
    places.append("/letters/topic?name=named.dead-letters")
    with opened(writing) as page:
        for path in places:
            page.goto(writing.url + path)
            if path == "/topics":  # whose figures come later
                expect(page.locator("main .page table")).to_contain_text(orders, timeout=PATIENCE_MS)
                expect(page.locator("main .page table")).not_to_contain_text("…", timeout=PATIENCE_MS)
            shows(page, page.locator("h1").first.inner_text())
            for button in ("Produce …", "Reset …"):
                if page.get_by_role("button", name=button).count():
                    page.get_by_role("button", name=button).click()
            for record in page.locator("button.record").all()[:1]:
                record.click()
                expect(page.locator(".opened pre").first).to_be_visible(timeout=PATIENCE_MS)
            assert page.locator("html").evaluate(NAMELESS) == [], path
            levels = page.locator("html").evaluate(LEVELS)
            assert levels.count(1) == 1, path
            assert all(after <= before + 1 for before, after in pairwise(levels)), (path, levels)
            expect(page.get_by_role("main")).to_have_count(1)
            expect(page.get_by_role("navigation", name="Pages")).to_have_count(1)


def a_letter(admin: Admin, write: Write, dead: str, **fields: Any) -> None:
    """A dead letter in a topic of its own."""
    admin.create_topics({dead: TopicSpec(partitions=1)})
    reason = DeadLetterReason(kind="failed", error_type=HOSTILE, message=HOSTILE, attempts=3, group=HOSTILE)
    known = {"partition": 0, "offset": 0, "timestamp_ms": 1, "key": b"k", "value": b"v", "headers": []}
    letter = build_dead_letter(**{**known, **fields}, reason=reason)
    write(dead, [(letter.key, letter.value, tuple(letter.headers))])


def test_topic_names_that_are_markup_stay_text(console: Running, opened: Opened, admin: Admin, write: Write) -> None:
    """A cluster has no such topics, but a dead letter may claim to come from one, and an address may name one."""
    a_letter(admin, write, "claimed.dead-letters", topic=HOSTILE)
    with opened(console, "/letters/topic?name=claimed.dead-letters") as page:
        page.locator("button.record").click()
        shows(page, f"The record it was: {HOSTILE}")
        assert page.locator("main img, main script").count() == 0
        page.locator("html").evaluate(
            "(html, name) => { location.hash = ''; history.replaceState(null, '', name); }",
            "/nothing-here?name=" + HOSTILE,
        )
        page.reload()
        shows(page, "There is no such page.")
        assert page.title().startswith("Not here")


FOCUSED = """() => {
  const each = document.activeElement;
  const seen = getComputedStyle(each);
  return [each.matches("button.record"), seen.outlineStyle !== "none" || seen.boxShadow !== "none"];
}"""


def test_a_record_is_opened_and_closed_with_the_keyboard_alone(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, f"/topic?name={orders}") as page:
        expect(page.locator("button.record").first).to_be_visible(timeout=PATIENCE_MS)
        for _ in range(100):
            page.keyboard.press("Tab")
            is_record, is_seen = page.locator("html").evaluate(FOCUSED)
            assert is_seen, "whoever uses the keyboard sees where it is"
            if is_record:
                break
        else:
            raise AssertionError("no record is reached by Tab")
        for opens in ("true", "false"):
            page.keyboard.press("Enter")
            expect(page.locator("button.record:focus")).to_have_attribute("aria-expanded", opens, timeout=PATIENCE_MS)


def test_a_record_that_is_closed_before_it_is_there_stays_closed(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, f"/topic?name={orders}") as page:
        record = page.locator("button.record").first
        expect(record).to_be_visible(timeout=PATIENCE_MS)
        held: list[Any] = []
        page.route("**/api/record?*", lambda route: held.append(route))  # not a builtin: it keeps a wrapper there
        record.click()
        shows(page, "Reading …")
        record.click()
        expect(record).to_have_attribute("aria-expanded", "false", timeout=PATIENCE_MS)
        with page.expect_response("**/api/record?*"):
            held.pop().continue_()
        record.click()  # asks again; what came before it is not taken for its answer
        expect(record).to_have_attribute("aria-expanded", "true", timeout=PATIENCE_MS)
        shows(page, "Reading …")
        held.pop().continue_()
        shows(page, "Copy as command")


def test_an_address_brings_the_same_search_to_somebody_else(console: Running, opened: Opened, orders: str) -> None:
    path = f"/topic?name={orders}&from=earliest&where=value.total+%3D%3D+43.5"
    with opened(console, path) as page:
        expect(page.locator("button.record")).to_have_count(1, timeout=PATIENCE_MS)
        expect(page.get_by_label("Where", exact=True)).to_have_value("value.total == 43.5")
        page.get_by_role("tab", name="Partitions").click()
        page.reload()
        expect(page.get_by_role("tab", name="Partitions")).to_have_attribute("aria-selected", "true")


def test_rows_stay_where_they_are_while_the_cursor_is_over_them(
    console: Running, opened: Opened, admin: Admin, write: Write
) -> None:
    admin.create_topics({name: TopicSpec(partitions=1) for name in ("still-one", "still-two")})
    write("still-one", [(None, b"1", ())] * 2)
    with opened(console, "/topics?match=still-&sort=records") as page:
        rows = page.locator("tbody tr")
        expect(rows.nth(0)).to_contain_text("still-one", timeout=PATIENCE_MS)
        expect(rows.nth(0).locator('td[data-title="Records"]')).to_have_text("2", timeout=PATIENCE_MS)
        rows.nth(0).hover()
        write("still-two", [(None, b"1", ())] * 5)
        expect(rows.nth(1).locator('td[data-title="Records"]')).to_have_text("5", timeout=PATIENCE_MS)
        expect(rows.nth(0)).to_contain_text("still-one")
        page.get_by_label("Filter topics").hover()
        expect(rows.nth(0)).to_contain_text("still-two", timeout=PATIENCE_MS)


def followed(page: Any, write: Write, topic: str) -> None:
    """Follow the topic, and wait until a record of it is shown."""
    page.get_by_role("button", name="Follow").click()
    for _ in range(600):  # what is written before the tail has begun is not followed
        write(topic, [(b"k", b"first", ())])
        if page.locator("button.record").count():
            return
        page.wait_for_timeout(100)
    raise AssertionError("nothing is followed")


def test_records_that_are_followed_wait_while_the_cursor_is_over_the_list(
    console: Running, opened: Opened, admin: Admin, write: Write
) -> None:
    admin.create_topics({"pointed-at": TopicSpec(partitions=1)})
    with opened(console, "/topic?name=pointed-at") as page:
        followed(page, write, "pointed-at")
        page.locator("button.record").first.hover()
        write("pointed-at", [(b"k", b"the newest", ())])
        shows(page, "until the cursor leaves the list")
        assert page.locator("button.record").filter(has_text="the newest").count() == 0
        page.get_by_label("From").hover()
        expect(page.locator("button.record").first).to_contain_text("the newest", timeout=PATIENCE_MS)


def test_a_tab_that_nobody_sees_follows_nothing(console: Running, opened: Opened, admin: Admin, write: Write) -> None:
    """A browser without a screen shows every tab, so the page is told that it is hidden."""
    told = """(html, hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""

    def is_tail(request: Any) -> bool:
        return "/api/tail" in request.url

    admin.create_topics({"unseen": TopicSpec(partitions=1)})
    with opened(console, "/topic?name=unseen") as page:
        followed(page, write, "unseen")
        with page.expect_event("requestfailed", is_tail):  # it is closed
            page.locator("html").evaluate(told, True)
        with page.expect_request(is_tail):
            page.locator("html").evaluate(told, False)
        shows(page, "following")


def is_copied(page: Any, wanted: str) -> None:
    for _ in range(600):
        if page.locator("html").evaluate("() => navigator.clipboard.readText()") == wanted:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never copied: {wanted}")


def test_a_command_with_the_name_of_a_group_is_one_command(
    console: Running, opened: Opened, admin: Admin, orders: str
) -> None:
    group = "it's; echo $(id)"
    admin.apply_reset(admin.plan_reset(group, to="latest", topics={orders: None}))
    with opened(console, "/groups", permissions=PERMISSIONS) as page:
        page.get_by_role("link", name=group).click()
        page.get_by_role("button", name="Reset …").click()
        page.get_by_label("To", exact=True).fill("earliest")
        page.get_by_label("Only topics").fill(f"{orders}:0,2")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Copy", exact=True).click()
        wanted = ["ottla", "groups", "reset", group, "--to=earliest", "--topic", f"{orders}:0,2"]
        is_copied(page, shlex.join(wanted).replace("'\"'\"'", "'\\''"))
        assert shlex.split(page.locator("html").evaluate("() => navigator.clipboard.readText()")) == wanted


def test_values_and_commands_are_copied_whole(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, f"/topic?name={orders}&partitions=1&from=1:0&limit=20", permissions=PERMISSIONS) as page:
        page.locator("button.record").first.click()
        page.get_by_role("heading", name="Value").get_by_role("button", name="Copy").click()
        is_copied(page, console.get("record", topic=orders, partition=1, offset=0)["record"]["value"])
        page.get_by_role("button", name="Copy as command").click()
        is_copied(page, f"ottla consume {orders} --from 1:0 -n 1")
