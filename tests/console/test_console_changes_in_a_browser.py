"""Topics are created, changed, deleted and compared in a real Chromium, on a cluster with 2,000 topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_browser import PATIENCE_MS, Opened, expect, shows
from console_kit import Running, running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TOPICS = 2_000


@pytest.fixture(scope="module")
def large() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running, Admin(running.bootstrap_servers, timeout_s=120) as admin:
        names = [f"orders-{number:04}" for number in range(TOPICS)]
        for first in range(0, TOPICS, 200):
            admin.create_topics(dict.fromkeys(names[first : first + 200], TopicSpec(partitions=1)))
        yield running


@pytest.fixture
def on_large(large: EmbeddedCluster, tmp_path: Path) -> Iterator[Running]:
    settings = cluster_settings(large.bootstrap_servers, {}, environ={})
    with running_console(settings, ConsoleOptions(may_write=True, folder=tmp_path, every_s=1.0)) as running:
        yield running


def test_the_diff_of_declarations_is_shown_and_changes_nothing(
    large: EmbeddedCluster, opened: Opened, tmp_path: Path
) -> None:
    """Every one of the 2,000 topics is declared otherwise than it is."""
    file = tmp_path / "cluster.toml"
    topics = [f'[topics.orders-{number:04}]\nsettings.retention.ms = "1h"\n' for number in range(TOPICS)]
    file.write_text("".join(topics))
    settings = cluster_settings(large.bootstrap_servers, {}, environ={})
    with running_console(settings, ConsoleOptions(declared=(file,))) as running, opened(running, "/") as page:
        page.get_by_role("link", name="Declared").click()
        shows(page, f"{TOPICS:,} differences from")
        region = page.get_by_role("region", name="What applying would change")
        expect(region).to_contain_text("orders-0000", timeout=PATIENCE_MS)
        expect(region).to_contain_text("604800000 without it")
        shows(page, "1,000 more")
        shows(page, "ottla apply plan")
        expect(page.locator("main").get_by_role("button", name="Compare again")).to_have_count(1)
        file.write_text("[topics.orders-0000]\n")
        page.get_by_role("button", name="Compare again").click()
        shows(page, "The cluster is as declared.")
    with Admin(large.bootstrap_servers) as admin:
        assert admin.topic_settings("orders-0000")["retention.ms"].value == "604800000"


@pytest.mark.complete
def test_a_topic_of_two_thousand_is_made_changed_and_deleted(
    on_large: Running, large: EmbeddedCluster, opened: Opened, tmp_path: Path
) -> None:
    with opened(on_large, "/topics") as page, Admin(large.bootstrap_servers) as admin:
        shows(page, f"of {TOPICS:,}")
        page.get_by_role("button", name="Create a topic …").click()
        page.get_by_label("Name").fill("invoices")
        page.get_by_label("Partitions").fill("3")
        page.get_by_label("Settings").fill("retention.ms=7d\nmax.message.bytes=2MiB")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.get_by_role("region", name="What would change")).to_contain_text("604800000", timeout=PATIENCE_MS)
        assert "invoices" not in {each.name for each in admin.list_topics()}
        page.get_by_role("button", name="Create it").click()
        expect(page.locator("h1")).to_have_text("invoices", timeout=PATIENCE_MS)
        shows(page, "max.message.bytes")

        page.get_by_role("button", name="Change settings …").click()
        page.get_by_label("Set", exact=True).fill("retention.ms=1h")
        page.get_by_label("Remove from the topic").fill("max.message.bytes")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Change them").click()
        expect(page.get_by_role("region", name="Settings", exact=True)).to_contain_text("3600000", timeout=PATIENCE_MS)
        expect(page.get_by_role("region", name="Settings", exact=True)).not_to_contain_text("max.message.bytes")

        page.get_by_role("button", name="Add partitions …").click()
        page.get_by_label("Partitions in all").fill("4")
        page.get_by_role("button", name="Show what would change").click()
        shows(page, "Records of a key may go to another partition")
        page.get_by_role("button", name="Add them").click()
        expect(page.get_by_role("button", name="Add them")).to_have_count(0, timeout=PATIENCE_MS)

        page.get_by_role("button", name="Delete …").click()
        delete = page.get_by_role("button", name="Delete it with all records")
        expect(delete).to_be_disabled(timeout=PATIENCE_MS)
        page.get_by_label("Type invoices to agree").fill("invoice")
        expect(delete).to_be_disabled()
        page.get_by_label("Type invoices to agree").fill("invoices")
        delete.click()
        expect(page.locator("h1")).to_have_text("Topics", timeout=PATIENCE_MS)
        assert "invoices" not in {each.name for each in admin.list_topics()}
    written = [json.loads(line) for line in (tmp_path / "ottla-console-audit.jsonl").read_text().splitlines()]
    assert [line["what"] for line in written] == [
        "topics.create",
        "topics.set",
        "topics.add-partitions",
        "topics.delete",
    ]


@pytest.mark.complete
def test_the_list_of_two_thousand_topics_is_filtered_at_once(on_large: Running, opened: Opened) -> None:
    with opened(on_large, "/topics") as page:
        shows(page, f"of {TOPICS:,}")
        page.get_by_label("Filter topics").fill("orders-1999")
        expect(page.locator("tbody tr")).to_have_count(1, timeout=PATIENCE_MS)


def test_a_console_that_only_reads_offers_no_change(console: Running, opened: Opened, orders: str) -> None:
    with opened(console, "/topics") as page:
        shows(page, orders)
        assert page.get_by_role("button", name="Create a topic …").count() == 0
        page.goto(f"{console.url}/topic?name={orders}")
        shows(page, "Retention")
        for name in ("Change settings …", "Add partitions …", "Delete …"):
            assert page.get_by_role("button", name=name).count() == 0


def test_a_search_is_saved_as_a_file(console: Running, opened: Opened, orders: str, tmp_path: Path) -> None:
    with opened(console, f"/topic?name={orders}") as page:
        page.get_by_label("From").fill("earliest")
        page.get_by_label("Where", exact=True).fill("value.total > 440")
        page.get_by_role("button", name="Search", exact=True).click()
        for form, name in (("JSON", f"{orders}.jsonl"), ("CSV", f"{orders}.csv")):
            with page.expect_download() as saved:
                page.get_by_role("button", name=f"Save as {form}").click()
            assert saved.value.suggested_filename == name
            saved.value.save_as(tmp_path / name)
    lines = [json.loads(line) for line in (tmp_path / f"{orders}.jsonl").read_text().splitlines()]
    assert {
        line["value"]["total"] if isinstance(line["value"], dict) else json.loads(line["value"])["total"]
        for line in lines
    } == {number * 1.5 for number in range(294, 300)}
    assert len((tmp_path / f"{orders}.csv").read_text().splitlines()) == 7


def test_rights_quotas_and_users_are_changed_on_one_page(opened: Opened, tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedCluster(config=settings) as running, Admin(running.bootstrap_servers) as admin:
        kafka = cluster_settings(running.bootstrap_servers, {}, environ={})
        with (
            running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path)) as console,
            opened(console, "/access") as page,
        ):
            page.get_by_role("button", name="Create ACLs …").click()
            page.get_by_label("Principal").fill("User:billing")
            page.get_by_label("Topics").fill("orders")
            page.get_by_label("Groups").fill("billing")
            page.get_by_role("button", name="Show what would change").click()
            page.get_by_role("button", name="Create them").click()
            expect(page.get_by_role("region", name="ACLs", exact=True).locator("tbody tr")).to_have_count(
                3, timeout=PATIENCE_MS
            )
            page.get_by_role("button", name="Delete allow User:billing read billing").click()
            page.get_by_role("button", name="Delete it").click()
            expect(page.get_by_role("region", name="ACLs", exact=True).locator("tbody tr")).to_have_count(
                2, timeout=PATIENCE_MS
            )

            page.get_by_role("button", name="Set quotas …").click()
            page.get_by_label("Client id").fill("reports")
            page.get_by_label("Set", exact=True).fill("producer_byte_rate=1MB")
            page.get_by_role("button", name="Show what would change").click()
            page.get_by_role("button", name="Change them").click()
            expect(page.get_by_role("region", name="Quotas", exact=True)).to_contain_text(
                "1,000,000", timeout=PATIENCE_MS
            )

            page.get_by_role("button", name="Set a password …").click()
            page.get_by_role("region", name="Set a password").get_by_label("User").fill("reports")
            page.get_by_role("textbox", name="Password").fill("corr3ct-h0rse")
            page.get_by_role("button", name="Show what would change").click()
            page.get_by_role("button", name="Set it").click()
            expect(page.get_by_role("region", name="Users", exact=True)).to_contain_text("8,192", timeout=PATIENCE_MS)
            assert page.get_by_text("corr3ct-h0rse").count() == 0
            page.get_by_role("button", name="Delete reports SCRAM-SHA-512").click()
            page.get_by_label("Type reports to agree").fill("reports")
            page.get_by_role("button", name="Delete it").click()
            shows(page, "There are no SCRAM users.")
        assert admin.find_scram_users() == ()
        assert len(admin.find_acls()) == 2
