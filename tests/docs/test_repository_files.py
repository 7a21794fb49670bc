"""Files around the code say what the code says: extras, change fragments, hooks, templates, versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import badges
import failure_picture
import pytest

from hatch_build import IndexReadme, for_the_index

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_installation_page_lists_every_extra_and_no_other() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    table = page.split("| extra | adds |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(listed) == sorted(PROJECT["project"]["optional-dependencies"])


class TestTheFirstScreenOfTheReadme:
    def test_the_first_code_stands_within_thirty_lines(self) -> None:
        assert README[: README.index("```python")].count("\n") < 30

    def test_it_links_to_eight_pages_to_read_on(self) -> None:
        assert len(re.findall(r"^- \[", README.partition("## Read on")[2], re.MULTILINE)) == 8

    @pytest.mark.parametrize("name", badges.badges())
    def test_a_badge_says_what_the_project_file_says(self, name: str) -> None:
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == badges.badges()[name]
        assert f"(docs/pictures/{name})" in README

    def test_the_picture_of_failures_is_drawn_from_the_rows(self) -> None:
        assert failure_picture.TARGET.read_text(encoding="utf-8") == failure_picture.draw()

    @pytest.mark.parametrize("row", failure_picture.ROWS, ids=lambda row: row.script)
    def test_each_row_of_the_picture_is_on_the_comparison_page(self, row: failure_picture.Row) -> None:
        page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
        (line,) = [line for line in page.splitlines() if row.script in line and row.quote in line]
        assert row.peer in line


class TestReadmeAtThePackageIndex:
    def links_of(self, shown: str) -> list[str]:
        prose = re.sub(r"```.*?```|`[^`]*`", "", shown, flags=re.DOTALL)
        return re.findall(r"\]\(([^)]+)\)", prose)

    def test_no_link_is_dead_while_the_project_has_no_address(self) -> None:
        shown = for_the_index(README, repository=None, version="1.2.3")
        assert [target for target in self.links_of(shown) if not target.startswith(("http://", "https://"))] == []
        assert "docs/tutorial.md" not in shown
        assert "Tutorial: a service" in shown
        assert "pictures/" not in shown
        assert "\n\n\n" not in shown

    def test_links_lead_to_the_files_of_the_version_once_it_has_one(self) -> None:
        shown = for_the_index(README, repository="https://forge.example/ottla/", version="1.2.3")
        relative = [target for target in self.links_of(README) if "://" not in target]
        found = [target for target in self.links_of(shown) if target.startswith("https://forge.example")]
        assert len(relative) > 10
        kinds = ["raw" if target.endswith(".svg") else "blob" for target in relative]
        assert found == [
            f"https://forge.example/ottla/{kind}/v1.2.3/{target}" for kind, target in zip(kinds, relative, strict=True)
        ]

    def test_the_build_reads_the_address_from_the_project_urls(self) -> None:
        project: dict[str, Any] = {"version": "1.2.3", "urls": {"Repository": "https://forge.example/ottla"}}
        IndexReadme(str(ROOT), {}).update(project)
        assert "(https://forge.example/ottla/blob/v1.2.3/docs/tutorial.md)" in project["readme"]["text"]
        assert project["readme"]["content-type"] == "text/markdown"


def test_the_architecture_page_names_modules_and_packages_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    files = [
        path.as_posix()
        for folder in ("src", "broker_embedded", "tools", "tests")
        for path in Path(ROOT / folder).rglob("*.py")
    ]
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert len(named) > 20
    assert [name for name in named if not any(path.endswith("/" + name) for path in files)] == []
    tables = page.partition("| package | responsible for |")[2].partition("\n\n")[0]
    listed = {
        name for row in re.findall(r"^\| (`.+?) \|", tables, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    modules = {path.stem for path in (ROOT / "src" / "ottla").iterdir() if not path.stem.startswith("__")}
    packages = {path.name for path in (ROOT / "src" / "ottla").iterdir() if (path / "__init__.py").exists()}
    assert listed - modules == set()
    assert packages - listed == set()


def test_every_change_fragment_has_a_type_that_the_changelog_knows() -> None:
    known = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "docs" / "changes").iterdir() if path.name != "README.md"]
    pattern = re.compile(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(sorted(known))})(\.\d+)?\.md")
    assert [name for name in names if not pattern.fullmatch(name)] == []
    for name in names:
        assert (ROOT / "docs" / "changes" / name).read_text(encoding="utf-8").strip(), name


def test_the_section_of_the_first_release_is_one_screen() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^## 0\.1\.0 .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert re.findall(r"^### (.+)$", section[0], re.MULTILINE) == ["Added", "Known limits"]
    assert section[0].count("\n") < 60


def test_the_changelog_has_the_line_where_releases_are_added() -> None:
    marker = PROJECT["tool"]["towncrier"]["start_string"]
    assert (ROOT / PROJECT["tool"]["towncrier"]["filename"]).read_text(encoding="utf-8").count(marker) == 1


def test_the_licence_is_whole_and_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text
    for section in range(1, 10):
        assert re.search(rf"^ +{section}\. ", text, re.MULTILINE), section
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_version_stands_in_one_place() -> None:
    version = PROJECT["project"]["version"]
    assert metadata.version("ottla") == version
    assigned = [
        path
        for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^__version__\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert assigned == []


@pytest.mark.parametrize("hook", re.findall(r"entry: (\S+)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8")))
def test_hooks_run_the_tools_of_make_lint(hook: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"$(VENV)/bin/{Path(hook).name}" in makefile or hook == ".venv/bin/python"


def loaded_by_tests_of(file: str, **environ: str) -> list[str]:
    """What a process has after a file of tests: how many examples Hypothesis tries (None: it is not there), modules."""
    program = (
        "import sys, pytest\n"
        "assert pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]) == 0\n"
        "settings = getattr(sys.modules.get('hypothesis'), 'settings', None)\n"
        "print('loaded', settings and settings.default.max_examples, *sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
        env=os.environ | environ,
    )
    return ended.stdout.rpartition("loaded ")[2].split()


def test_a_test_file_without_properties_starts_without_hypothesis() -> None:
    examples, *loaded = loaded_by_tests_of("tests/wire/test_facts.py")
    assert examples == "None"
    assert not {"hypothesis", "anyio", "confluent_kafka", "aiokafka", "numpy", "pyarrow"} & set(loaded)


def test_properties_are_tried_with_as_many_examples_as_the_profile_says() -> None:
    assert loaded_by_tests_of("tests/wire/test_primitives.py", HYPOTHESIS_PROFILE="brisk")[0] == "8"
