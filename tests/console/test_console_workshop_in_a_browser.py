"""The page of the embedded broker and the page of one service, in a real Chromium."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from console_browser import PATIENCE_MS, Opened, expect, shows
from console_kit import Write, running_console
from service_console_kit import SERVICE_TOKEN, running_service

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PICTURES = os.environ.get("OTTLA_CONSOLE_PICTURES")


def test_a_workshop_is_held_on_the_embedded_page(controlled: tuple[str, str], opened: Opened, tmp_path: Path) -> None:
    servers, url = controlled
    with Admin(servers) as admin:
        admin.create_topics({"lesson": TopicSpec(partitions=120, replication_factor=3)})
    choices = ConsoleOptions(may_write=True, folder=tmp_path, control=url)
    with (
        running_console(cluster_settings(servers, {}, environ={}), choices) as console,
        opened(console, "/embedded") as page,
    ):
        brokers = page.get_by_role("table", name="Brokers").locator("tbody tr")
        expect(brokers).to_have_count(3, timeout=PATIENCE_MS)
        second = brokers.nth(1)
        second.get_by_role("button", name="kill").click()
        expect(second).not_to_contain_text("running", timeout=PATIENCE_MS)
        page.get_by_role("button", name="Explain lesson-0", exact=True).click()
        expect(page.locator(".sentences")).to_contain_text("lesson-0", timeout=PATIENCE_MS)
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/console-embedded-1280-light.png")
        second.get_by_role("button", name="start").click()
        expect(second).to_contain_text("running", timeout=PATIENCE_MS)
        faults = page.get_by_role("region", name="Faults")
        faults.get_by_role("button", name="Add").click()
        expect(faults).to_contain_text("NOT_LEADER_OR_FOLLOWER", timeout=PATIENCE_MS)
        faults.get_by_role("button", name="Clear all").click()
        expect(faults).to_contain_text("None.", timeout=PATIENCE_MS)
        links = page.get_by_role("region", name="Links")
        links.get_by_role("button", name="Slow").click()
        expect(links.locator("li").first).to_be_visible(timeout=PATIENCE_MS)
        links.get_by_role("button", name="Heal all").click()
        shows(page, "All are whole.")
        page.get_by_role("region", name="Clock").get_by_role("button", name="Advance").click()
        shows(page, re.compile(r"It is 19\d\d-|It is 20\d\d-"))
        shows(page, "1–100 of 120")
        page.get_by_role("button", name="Later").click()
        shows(page, "lesson-119")


def test_the_embedded_page_breaks_nothing_without_write(
    controlled: tuple[str, str], opened: Opened, tmp_path: Path
) -> None:
    servers, url = controlled
    choices = ConsoleOptions(folder=tmp_path, control=url)
    with (
        running_console(cluster_settings(servers, {}, environ={}), choices) as console,
        opened(console, "/embedded") as page,
    ):
        shows(page, "This console only reads")
        expect(page.get_by_role("button", name="kill").first).to_be_disabled(timeout=PATIENCE_MS)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_of_a_service(
    cluster: EmbeddedCluster, served: str, opened: Opened, tmp_path: Path, write: Write, width: int, scheme: str
) -> None:
    view = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with (
        running_service(cluster.bootstrap_servers, served, tmp_path, "--console-write") as service,
        opened(service, token=SERVICE_TOKEN, **view) as page,
    ):
        rows = page.get_by_role("table", name="Partitions").locator("tbody tr")
        expect(rows).to_have_count(2, timeout=PATIENCE_MS)
        write(served, [(b"k", b"later", ())], partition=1)
        retries = page.get_by_role("table", name="Retries that wait").locator("tbody tr")
        expect(retries).to_contain_text(re.compile("in (10|9) min"), timeout=PATIENCE_MS)
        rows.nth(0).get_by_role("button", name="Pause").click()
        expect(rows.nth(0)).to_contain_text("paused", timeout=PATIENCE_MS)
        widest = page.locator("html").evaluate("(html) => html.scrollWidth - html.clientWidth")
        assert widest <= 0
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/console-service-{width}-{scheme}.png", full_page=True)
        page.get_by_role("button", name="Resume all").click()
        expect(rows.nth(0)).not_to_contain_text("paused", timeout=PATIENCE_MS)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_contract_of_a_service_is_a_tab(
    cluster: EmbeddedCluster, served: str, opened: Opened, tmp_path: Path, width: int, scheme: str
) -> None:
    view = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with (
        running_service(cluster.bootstrap_servers, served, tmp_path) as service,
        opened(service, token=SERVICE_TOKEN, **view) as page,
    ):
        page.get_by_role("link", name="Contract").click()
        contract = page.frame_locator("iframe")
        expect(contract.get_by_role("heading", name=f"{served} on_record")).to_be_visible(timeout=PATIENCE_MS)
        expect(contract.locator("body")).to_contain_text("served.dead-letters")
        widest = page.locator("html").evaluate("(html) => html.scrollWidth - html.clientWidth")
        assert widest <= 0
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/console-contract-{width}-{scheme}.png")
        assert page.url.endswith("/contract")
        page.reload()
        expect(contract.get_by_role("heading", name=f"{served} on_record")).to_be_visible(timeout=PATIENCE_MS)
        page.go_back()
        expect(page.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(2, timeout=PATIENCE_MS)


def test_a_service_that_is_only_shown_has_no_buttons(
    cluster: EmbeddedCluster, served: str, opened: Opened, tmp_path: Path
) -> None:
    with (
        running_service(cluster.bootstrap_servers, served, tmp_path) as service,
        opened(service, token=SERVICE_TOKEN) as page,
    ):
        expect(page.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(2, timeout=PATIENCE_MS)
        expect(page.get_by_role("button")).to_have_count(0)
