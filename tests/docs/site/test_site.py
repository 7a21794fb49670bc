"""The documentation as a site: it builds without a warning, holds every public name and command, and no dead link."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
import yaml

pytest.importorskip("zensical", reason="pip install 'ottla[docs]'")
from docs_site import links
from docs_site.navigation import completed, paths_in
from docs_site.public_api import PUBLIC_MODULES, public_names
from docs_site.spelling import misspelt
from docs_site.versions import add_version

from ottla.cli import COMMANDS, main
from ottla.config.defaults import PRODUCER_DEFAULTS
from ottla.testing import wait_until

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
pytestmark = [pytest.mark.complete, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def site(built_site: Path) -> Path:
    return built_site


def test_serve_shows_the_site_until_it_is_interrupted(build: Path, built_site: Path) -> None:
    assert not (build / "site").exists(), "what is shown is not what was built before"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*probe.getsockname())
    command = [sys.executable, "-m", "docs_site", "serve", "--build", str(build), "--address", address]
    environment = {"PYTHONPATH": str(ROOT / "tools"), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as serving:
        try:
            shown = wait_until(lambda: fetched(f"http://{address}/glossary/"), timeout_s=200, interval_s=0.1)
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(serving.pid, signal.SIGKILL)
    assert "high watermark" in shown.lower()
    assert serving.returncode == 0
    assert (build / "site" / "glossary" / "index.html").exists()


def fetched(address: str) -> str:
    """The page; empty while nothing answers there, or it is not built yet."""
    try:
        with urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_has_an_entry_with_words(site: Path, module: str) -> None:
    html = (site / "reference" / "api" / module / "index.html").read_text(encoding="utf-8")
    of_ottla = {each.name for each in public_names("ottla")}
    wanted = [each.name for each in public_names(module) if module == "ottla" or each.name not in of_ottla]
    entries = re.split(r'<h2 id="', html)[1:]
    described = {re.match(r'[^"]*\.(\w+)"', entry)[1]: "<p>" in entry for entry in entries}
    assert [name for name in wanted if name not in described] == []
    assert [name for name in wanted if not described[name]] == []


def test_an_entry_says_where_its_source_is(build: Path) -> None:
    pages = {module: (build / "docs" / "reference" / "api" / f"{module}.md").read_text() for module in PUBLIC_MODULES}
    for module, page in pages.items():
        assert page.count("\n::: ") == len(
            re.findall(r"is defined in `[\w/]+\.py`, line \d+\.$", page, re.MULTILINE)
        ), module
    path, line = re.search(r"`RetryPolicy` is defined in `([^`]+)`, line (\d+)", pages["ottla"]).groups()
    assert (ROOT / path).read_text(encoding="utf-8").splitlines()[int(line) - 1].startswith("class RetryPolicy")


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        text = text_of(site / "reference" / "cli" / name / "index.html")
        assert f"ottla {name}" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.hidden:  # a word of other tools, taken and not shown
                continue
            for option in parameter.opts:
                assert option in text or not option.startswith("-"), f"{name}: {option}"


def test_the_settings_have_their_reasons(site: Path) -> None:
    text = text_of(site / "reference" / "settings" / "index.html")
    for default in PRODUCER_DEFAULTS.values():
        assert default.name in text
    assert "must not append the record twice" in text


def test_code_in_a_table_shows_no_backslash_before_a_bar(site: Path) -> None:
    """GitHub needs `\\|` there, and Python-Markdown would show it."""
    assert "Json[Order | None](Order)" in text_of(site / "how-to" / "serdes" / "index.html")
    assert "--format [table|plain|json]" in text_of(site / "reference" / "cli" / "index.html")


def test_a_unit_in_braces_is_shown(site: Path) -> None:
    assert "counter, {message}" in text_of(site / "reference" / "telemetry" / "index.html")


def test_options_that_many_commands_share_are_explained_once(site: Path) -> None:
    explained = "A cluster of the file that ottla contexts shows."
    pages = (site / "reference" / "cli").glob("**/index.html")
    assert [page.parent.name for page in pages if explained in text_of(page)] == ["cli"]


def test_the_search_finds_pages_and_names(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    titles = json.dumps([item.get("title") for item in index["items"]])
    for words in ("Dead letters", "ottla.RetryPolicy", "ottla topics"):
        assert words in titles


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("which tool when", "how-to/which-tool/"),
        ("why was my record handled twice", "how-to/handled-twice/"),
        ("my lag does not fall", "how-to/lag-does-not-fall/"),
        ("errors and retries cookbook", "how-to/errors-and-retries/"),
        ("configuration precedence environment", "how-to/configuration/"),
        ("logging sentry structlog caplog", "how-to/logging/"),
        ("larger service modules", "how-to/larger-service/"),
        ("change a live service assignor", "how-to/change-a-live-service/"),
        ("docker compose", "how-to/local-development/"),
        ("tuning bottleneck", "how-to/tuning/"),
        ("troubleshooting symptom", "how-to/troubleshooting/"),
        ("runbook OttlaLagHigh", "how-to/runbooks/"),
    ],
)
def test_the_search_finds_the_page_of_a_question_by_its_words(site: Path, question: str, page: str) -> None:
    """All words stand in what is indexed of the page, and few other pages have them all."""
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    texts: dict[str, str] = {}
    for item in index["items"]:
        where = item["location"].partition("#")[0]
        texts[where] = f"{texts.get(where, '')} {item.get('title', '')} {item.get('text', '')}".lower()
    found = [where for where, text in texts.items() if all(word in text for word in question.lower().split())]
    assert page in found
    assert len(found) < 30


class TestForMachines:
    def test_the_index_lists_every_page_of_the_navigation_with_a_file_that_exists(
        self, build: Path, site: Path
    ) -> None:
        index = (site / "llms.txt").read_text(encoding="utf-8")
        assert index.startswith("# Ottla\n\n> ")
        linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
        listed = list(paths_in(yaml.safe_load((build / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
        assert sorted(linked) == sorted(listed)
        assert [name for name in linked if not (site / name).is_file()] == []

    def test_the_markdown_of_a_page_stands_beside_it(self, site: Path) -> None:
        assert (site / "how-to" / "consuming" / "index.html").exists()
        assert "## What a handler returns" in (site / "how-to" / "consuming.md").read_text(encoding="utf-8")

    def test_the_reference_has_signatures_and_docstrings(self, site: Path) -> None:
        page = (site / "reference" / "api" / "ottla.md").read_text(encoding="utf-8")
        assert "\n::: " not in page
        assert "## `ottla.RetryPolicy`" in page
        assert "RetryPolicy(" in page

    def test_the_whole_text_has_every_guide(self, site: Path) -> None:
        whole = (site / "llms-full.txt").read_text(encoding="utf-8")
        for path in (DOCS / "how-to").glob("*.md"):
            assert path.read_text(encoding="utf-8").splitlines()[0] in whole, path.name


def test_every_page_of_the_repository_is_in_the_navigation(build: Path) -> None:
    listed = set(paths_in(yaml.safe_load((build / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "changes" not in path.parts}
    assert len(pages) > 30
    assert pages - listed == set()
    assert {f"reference/cli/{name}.md" for name in COMMANDS} - listed == set()


def test_the_list_of_how_to_guides_has_every_guide() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "how-to" / "index.md").read_text(encoding="utf-8"))
    assert sorted([*listed, "index.md"]) == sorted(path.name for path in (DOCS / "how-to").glob("*.md"))


def test_a_page_that_nobody_listed_joins_the_section_of_its_folder() -> None:
    nav = [{"Home": "index.md"}, {"How to": ["how-to/a.md"]}]
    pages = ["index.md", "how-to/a.md", "how-to/new.md", "guides/deep/first.md", "alone.md"]
    found = completed(nav, pages, {"how-to/new.md": "New"})
    assert {"New": "how-to/new.md"} in found[1]["How to"]
    assert sorted(paths_in(found)) == sorted(pages)


class TestLinks:
    def test_a_dead_link_a_missing_anchor_and_a_foreign_script_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "index.html").write_text('<h2 id="here">x</h2><a href="../">home</a>')
        (tmp_path / "index.html").write_text(
            '<a href="a/#here">fine</a><a href="a/#gone">x</a><a href="b/">x</a><script src="https://cdn.example/x.js">'
        )
        assert links.problems(tmp_path) == [
            "index.html: links to a/#gone, which has no such anchor",
            "index.html: links to b/, which is not there",
            "index.html: loads https://cdn.example/x.js",
        ]

    def test_the_built_site_is_what_is_checked(self, site: Path, tmp_path: Path) -> None:
        copy = shutil.copytree(site, tmp_path / "site")
        shutil.rmtree(copy / "glossary")
        assert any("glossary" in problem for problem in links.problems(copy))


class TestVersions:
    def test_sites_stand_beside_each_other_and_latest_is_the_newest(self, tmp_path: Path) -> None:
        versions = tmp_path / "versions"
        for version in ("0.9", "0.10", "0.2"):
            site = tmp_path / version
            site.mkdir()
            (site / "index.html").write_text(version)
            add_version(site, versions, version)
        (tmp_path / "0.9" / "index.html").write_text("0.9 again")
        add_version(tmp_path / "0.9", versions, "0.9")

        listed = json.loads((versions / "versions.json").read_text())
        assert [(each["version"], each["aliases"]) for each in listed] == [
            ("0.10", ["latest"]),
            ("0.9", []),
            ("0.2", []),
        ]
        shown = {name: (versions / name / "index.html").read_text() for name in ("0.9", "0.10", "0.2", "latest")}
        assert shown == {"0.9": "0.9 again", "0.10": "0.10", "0.2": "0.2", "latest": "0.10"}
        assert 'url=latest/"' in (versions / "index.html").read_text()

    def test_a_version_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="wanted numbers with dots"):
            add_version(tmp_path, tmp_path / "versions", "../next")


class TestSpelling:
    def test_a_misspelt_word_is_found_with_its_place(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("# Right\n\nRecords are recieved here.\n")
        assert misspelt(page) == [f"{page}:3: recieved ==> received"]

    def test_pages_docstrings_and_messages_are_spelt_right(self) -> None:
        assert misspelt(DOCS, ROOT / "src" / "ottla", *ROOT.glob("*.md")) == []
