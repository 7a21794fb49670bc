"""Workflow templates are valid and run `make`; the release check finds what is wrong with a package."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from release_check.environments import CheckFailed, run
from release_check.packages import (
    NEEDED_IN_SDIST,
    NEEDED_TO_PUBLISH,
    PACKAGES,
    has_section,
    metadata_of,
    missing_addresses,
    problems_of_sdist,
    problems_of_wheel,
    read_sdist,
    read_wheel,
)
from release_check.report import Report

from ottla.cli.services.new import FILES

pytestmark = pytest.mark.complete

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def parsed(request: pytest.FixtureRequest) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="pip install 'ottla[docs]'")
    found: dict[str, Any] = yaml.safe_load(request.param.read_text(encoding="utf-8"))
    return found


def in_parts(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=in_parts)
def test_a_workflow_fits_the_schema(path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_that_is_wrong_is_found(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    (tmp_path / "wrong.yml").write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, str(tmp_path / "wrong.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter of workflows: it also reads expressions, inputs of actions, and shell scripts where shellcheck is."""
    if installed := shutil.which("actionlint"):
        return installed
    if shutil.which("go") is None:
        pytest.skip("actionlint is not there, and no Go that could build it")
    folder = tmp_path_factory.mktemp("actionlint")
    command = ["go", "install", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"]
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"actionlint cannot be had from the Go modules' proxy: {done.stderr[-300:]}")
    return str(folder / "actionlint")


@pytest.mark.timeout(400)
def test_actionlint_finds_nothing_in_the_workflows_and_something_in_a_wrong_one(
    actionlint: str, tmp_path: Path
) -> None:
    def lint(*paths: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([actionlint, *map(str, paths)], capture_output=True, text=True, timeout=60)

    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("github.ref_type", "github.no_such_thing"))
    assert "no_such_thing" in lint(wrong).stdout
    done = lint(*WORKFLOWS)
    assert done.returncode == 0, done.stdout


def scripts_of(workflow: str, job: str) -> list[str]:
    yaml = pytest.importorskip("yaml", reason="pip install 'ottla[docs]'")
    parsed = yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8"))
    return [step["run"] for step in parsed["jobs"][job]["steps"] if "run" in step]


ONE_PAGE = """docs:
\tmkdir -p site && echo $(VERSION) > site/index.html
\tPYTHONPATH={tools} {python} -c \
\t"from pathlib import Path as P; from docs_site.versions import add_version as a; \
\ta(P('site'), P('build/docs-site/versions'), '$(VERSION)')"
"""


def test_each_tag_adds_the_site_of_its_version_to_those_that_are_kept(tmp_path: Path) -> None:
    def run(*command: str, cwd: Path, **more: str) -> None:
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, **more}
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    origin, source = tmp_path / "origin.git", tmp_path / "source"
    run("git", "init", "--quiet", "--bare", str(origin), cwd=tmp_path)
    run("git", "init", "--quiet", str(source), cwd=tmp_path)
    (source / "Makefile").write_text(ONE_PAGE.format(tools=ROOT / "tools", python=sys.executable))
    (source / ".gitignore").write_text("build/\nsite/\n")
    run("git", "add", "--all", cwd=source)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first", cwd=source)
    run("git", "push", "--quiet", str(origin), "HEAD:main", cwd=source)
    for tag in ("v0.1.0", "v0.2.0"):
        checkout = tmp_path / tag  # each run of a workflow begins with a checkout of its own
        run("git", "clone", "--quiet", "--branch", "main", str(origin), str(checkout), cwd=tmp_path)
        for script in scripts_of("docs.yml", "publish"):
            run("bash", "-e", "-c", script, cwd=checkout, GITHUB_REF_NAME=tag)
    published = checkout / "build" / "docs-site" / "versions"
    names = {path.name for path in published.iterdir()} - {".git"}
    assert names == {"0.1", "0.2", "latest", "versions.json", "index.html"}
    assert (published / "latest" / "index.html").read_text() == "0.2\n"
    assert (published / "0.1" / "index.html").read_text() == "0.1\n"


@pytest.mark.representative
@pytest.mark.parametrize("parsed", WORKFLOWS, ids=in_parts, indirect=True)
def test_a_workflow_has_few_rights_ends_in_time_and_runs_what_the_makefile_has(parsed: dict[str, Any]) -> None:
    assert parsed["permissions"] == {"contents": "read"}, "jobs ask for more where they need it"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name, job in parsed["jobs"].items():
        assert job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            assert set(re.findall(r"^make ([a-z-]+)", step.get("run", ""), re.MULTILINE)) <= targets
            assert "secrets." not in str(step), "publishing is trusted by its origin; there is no token to keep"


@pytest.mark.representative
@pytest.mark.parametrize("parsed", [ROOT / ".github" / "workflows" / "test.yml"], ids=in_parts, indirect=True)
def test_the_matrix_is_the_pythons_of_the_package(parsed: dict[str, Any]) -> None:
    classifiers = PROJECT["project"]["classifiers"]
    supported = [each.rsplit(" ", 1)[1] for each in classifiers if re.search(r":: 3\.\d+$", each)]
    assert parsed["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def wheel_with(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "Name: ottla\nVersion: 1.2.3\nProvides-Extra: avro\n")
    return path


GOOD = (
    *(f"{package}/__init__.py" for package in PACKAGES),
    "ottla/py.typed",
    "broker_embedded/py.typed",
    "ottla-1.2.3.dist-info/METADATA",
    "ottla-1.2.3.dist-info/licenses/LICENSE",
)


def test_a_good_wheel_has_no_problems(tmp_path: Path) -> None:
    wheel = read_wheel(wheel_with(tmp_path / "w.whl", *GOOD))
    assert problems_of_wheel(wheel) == []
    assert metadata_of(wheel)["Version"] == ["1.2.3"]
    assert wheel.size_bytes > 0


@pytest.mark.parametrize(
    ("more", "less", "said"),
    [
        (("benchmarks/run.py",), (), "wheel: found benchmarks, wanted only"),
        ((), ("ottla-1.2.3.dist-info/licenses/LICENSE",), "wheel: the licence text is missing"),
        ((), ("ottla/py.typed",), "wheel: ottla/py.typed is missing"),
        (("ottla/tests/test_it.py",), (), "which is no part of the product"),
        ((), ("ottla_wire/__init__.py",), "wheel: ottla_wire is missing"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_said(
    tmp_path: Path, more: tuple[str, ...], less: tuple[str, ...], said: str
) -> None:
    names = [name for name in (*GOOD, *more) if name not in less]
    (problem,) = problems_of_wheel(read_wheel(wheel_with(tmp_path / "w.whl", *names)))
    assert said in problem


def test_an_sdist_without_its_tests_is_found(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as archive:
        for name in NEEDED_IN_SDIST[:-1]:
            archive.addfile(tarfile.TarInfo(f"ottla-1.2.3/{name}"), io.BytesIO())
    assert problems_of_sdist(read_sdist(tmp_path / "s.tar.gz")) == ["sdist: tests/conftest.py is missing"]


def test_an_sdist_has_no_tools_no_benchmarks_and_no_test_that_needs_them(tmp_path: Path) -> None:
    """The build that users of the sdist rely on: what is excluded is a list of files, which a new test must join."""
    builder = SdistBuilder(str(ROOT))
    sources = {file.distribution_path: Path(file.path) for file in builder.recurse_included_files()}
    assert "hatch_build.py" in sources
    assert "tests/sdk/failures" in {str(Path(name).parent) for name in sources}
    assert [name for name in sources if name.startswith(("tools/", "benchmarks/"))] == []
    folders = (ROOT / "tools", ROOT / "benchmarks", ROOT / "benchmarks" / "peers")
    missing = {path.stem for folder in folders for path in folder.iterdir() if path.suffix in ("", ".py")}
    needing = re.compile(
        rf"^\s*(?:from|import) (?:{'|'.join(sorted(missing))})\b|\bROOT / \"(?:tools|benchmarks)\"", re.M
    )
    tests = {name: path for name, path in sources.items() if name.startswith("tests/") and name.endswith(".py")}
    assert [name for name, path in tests.items() if needing.search(path.read_text(encoding="utf-8"))] == []


def test_the_wheel_has_what_commands_show_and_write() -> None:
    found = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"ottla/new_service/{path}" for path in FILES} <= found
    assert {f"ottla/error_pages/{path.name}" for path in (ROOT / "docs" / "errors").iterdir()} <= found
    assert not [name for name in found if "__pycache__" in name]


def test_an_address_that_is_missing_is_named() -> None:
    fields = {"Project-URL": [f"{label}, https://forge.example/{label}" for label in NEEDED_TO_PUBLISH[1:]]}
    assert missing_addresses(fields) == [NEEDED_TO_PUBLISH[0]]
    assert missing_addresses({}) == list(NEEDED_TO_PUBLISH)


def test_the_changelog_of_a_version_is_found_by_its_heading() -> None:
    changelog = "# Changelog\n\n## 1.10.0 (2026-11-24)\n\n## The story until 0.1.0\n\n1.1.0 is no heading\n"
    assert [version for version in ("1.10.0", "0.1.0", "1.1.0", "10.0", "1.10") if has_section(changelog, version)] == [
        "1.10.0",
        "0.1.0",
    ]


def test_the_packages_are_those_that_the_project_declares() -> None:
    declared = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(Path(each).name for each in declared) == sorted(PACKAGES)


def test_the_report_says_what_is_wrong_first() -> None:
    report = Report("1.2.3", problems=["build: no"], skipped=["Python 3.99: it is not installed here"])
    report.step("build", "failed", 1.0)
    lines = report.text().splitlines()
    assert lines[2:4] == ["- **wrong**: build: no", "- not done: Python 3.99: it is not installed here"]


def test_a_command_that_does_not_end_is_a_step_that_failed_and_loses_no_report(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"did not end within 0\.2 s"):
        run(sys.executable, "-c", "import time; time.sleep(600)", cwd=tmp_path, timeout_s=0.2)
