"""The page of schemas in a real Chromium, with 2,000 subjects and hostile names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_browser import PATIENCE_MS, Opened, expect, menu_of, shows
from console_kit import HOSTILE, Running, running_console

from ottla.config import Settings
from ottla.console.state import ConsoleOptions
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing.registry import EmbeddedRegistry
from ottla.testing.registry.state import LogRecord

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PICTURES = os.environ.get("OTTLA_CONSOLE_PICTURES")
ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": ""}]}


@pytest.fixture
def registry() -> Iterator[RegistryAdmin]:
    with EmbeddedRegistry() as running:
        admin = RegistryAdmin(running.url)
        for each in (ONE, TWO):
            admin.register("orders-value", json.dumps(each))
        admin.register(HOSTILE, json.dumps({"type": "string", "doc": HOSTILE}))
        for number in range(2_000):
            key = {"keytype": "SCHEMA", "subject": f"subject-{number:04}", "version": 1}
            value = {"subject": f"subject-{number:04}", "version": 1, "id": 100, "schema": '"string"'}
            running._state.replay(LogRecord(key, value))
        yield admin


@pytest.fixture
def console(kafka: Settings, registry: RegistryAdmin, tmp_path: Path) -> Iterator[Running]:
    choices = ConsoleOptions(may_write=True, folder=tmp_path, registry=registry.url)
    with running_console(kafka, choices) as running:
        yield running


@pytest.mark.representative("1280-light")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["1280-light", "390-dark"])
def test_schemas_are_found_compared_changed_and_restored(
    console: Running, registry: RegistryAdmin, opened: Opened, width: int, scheme: str
) -> None:
    with opened(console, "/schemas", viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        shows(page, "of 2,002")
        shows(page, HOSTILE)
        assert {"Schemas", "Access"} <= set(menu_of(page, width))
        page.get_by_label("Filter subjects").fill("orders")
        shows(page, "1 in all")
        page.get_by_role("link", name="orders-value").click()
        shows(page, '"name": "note"')
        widest = page.locator("html").evaluate("(html) => html.scrollWidth - html.clientWidth")
        assert widest <= 0
        page.get_by_role("button", name="Compare").click()
        shows(page, "The new schema reads data of the old one: yes")
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/console-schema-{width}-{scheme}.png", full_page=True)

        page.get_by_role("button", name="Register a version …").click()
        page.get_by_role("textbox", name="Schema").fill(json.dumps({**ONE, "fields": [{"name": "id", "type": "int"}]}))
        page.get_by_role("button", name="Show what would change").click()
        shows(page, "reader wants int, writer has long")
        expect(page.get_by_role("button", name="Register", exact=True)).to_have_count(0)
        more = {**TWO, "fields": [*TWO["fields"], {"name": "more", "type": "string", "default": ""}]}
        page.get_by_role("textbox", name="Schema").fill(json.dumps(more))
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Register", exact=True).click()
        shows(page, "Registered as version 3")
        assert registry.versions("orders-value") == [1, 2, 3]

        page.get_by_role("button", name="Delete …").first.click()
        expect(page.get_by_role("table", name="What would change").locator("tbody tr")).to_have_count(
            3, timeout=PATIENCE_MS
        )
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Undo …").click()
        page.get_by_role("button", name="Restore", exact=True).click()
        shows(page, "Restored.")
        assert registry.versions("orders-value") == [4, 5, 6]

        page.get_by_role("button", name="Compatibility …").click()
        page.get_by_label("Compatibility").select_option("FULL")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Set the level").click()
        shows(page, "The compatibility is FULL.")
        assert registry.level("orders-value") == "FULL"


def test_a_console_without_write_offers_no_change(kafka: Settings, registry: RegistryAdmin, opened: Opened) -> None:
    with (
        running_console(kafka, ConsoleOptions(registry=registry.url)) as console,
        opened(console, "/schema?subject=orders-value") as page,
    ):
        shows(page, '"name": "note"')
        expect(page.get_by_role("button", name="Delete …")).to_have_count(0)
        expect(page.get_by_role("link", name="Schemas").first).to_be_visible()
