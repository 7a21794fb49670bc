"""`python -m release_check`: build, examine, install in fresh environments, use, report. 1 if anything is wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docs_site.project import ROOT, project
from docs_site.public_api import PUBLIC_MODULES

from release_check.environments import WITHOUT_EXTRAS, CheckFailed, Environment, interpreter_of, run
from release_check.packages import (
    Package,
    has_section,
    metadata_of,
    missing_addresses,
    problems_of_sdist,
    problems_of_wheel,
    read_sdist,
    read_wheel,
)
from release_check.report import Report, megabytes

NOT_FOR_USERS = {"dev", "docs", "release", "demo", "browser"}
FIRST_STEPS = ("tests/docs/test_readme_first_run.py", "tests/examples/test_examples.py")
QUICK_TESTS = ("tests/wire", "tests/sdk/failures")
"""Of the sdist, on each Python: they need few packages, and no time."""
_QUIETLY = ("-q", "-p", "no:cacheprovider")


def main() -> int:
    parser = argparse.ArgumentParser(prog="release_check", description=__doc__)
    parser.add_argument("--python", action="append", help="a version to install on, as 3.12; all supported if left out")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release", help="where packages and report go")
    parser.add_argument("--to-publish", action="store_true", help="what is allowed to be missing in a trial is wrong")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ottla-release-") as scratch:
        report = check(out, Path(scratch), options.python, is_to_publish=options.to_publish)
    (out / "report.md").write_text(report.text(), encoding="utf-8")
    print(report.text())
    return 1 if report.problems else 0


def check(out: Path, scratch: Path, versions: list[str] | None, *, is_to_publish: bool = False) -> Report:
    """`is_to_publish`: an interpreter or an address that is missing is a problem, not a remark."""
    report = Report("?")
    remarks = report.problems if is_to_publish else report.skipped

    @contextmanager
    def step(what: str) -> Iterator[list[str]]:
        """A step that fails is written down, and the next one goes on where it can."""
        began, said = time.monotonic(), ["done"]
        print(f"==> {what}", flush=True)
        try:
            yield said
        except (CheckFailed, AssertionError) as error:
            said[:] = ["failed"]
            report.problems.append(f"{what}: {error}")
            print(f"failed: {error}", flush=True)
        report.step(what, "; ".join(said), time.monotonic() - began)

    tools = Environment.make(sys.executable, scratch / "tools")
    tools.install(*_requirements("release"))
    with step("build sdist, and a wheel from it") as said:
        run(tools.python, "-m", "build", "--outdir", out, ROOT, cwd=scratch)
        (wheel,), (sdist,) = map(read_wheel, out.glob("*.whl")), map(read_sdist, out.glob("*.tar.gz"))
        report.problems += [*problems_of_wheel(wheel), *problems_of_sdist(sdist)]
        fields = metadata_of(wheel)
        report.version = fields["Version"][0]
        said[:] = [f"wheel {megabytes(wheel.size_bytes)}, {len(wheel.names)} files"]
        said.append(f"sdist {megabytes(sdist.size_bytes)}, {len(sdist.names)} files")
    if report.problems:
        return report
    if missing := missing_addresses(fields):
        remarks.append(f"publishing: pyproject.toml has no project URL {', '.join(missing)}")
    if not has_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), report.version):
        remarks.append(f"publishing: CHANGELOG.md has no section of {report.version}")
    with step("changelog of what is new") as said:
        drafting = ["build", "--draft", "--version", report.version, "--dir", ROOT]
        draft = run(tools.bin / "towncrier", *drafting, cwd=scratch)
        said[:] = [f"{sum(line.startswith('- ') for line in draft.splitlines())} changes"]
    with step("twine check --strict"):
        run(tools.bin / "twine", "check", "--strict", wheel.path, sdist.path, cwd=scratch)
    with step("check-wheel-contents"):  # several top-level packages are meant
        run(tools.bin / "check-wheel-contents", "--toplevel", ",".join(_roots(wheel.names)), wheel.path, cwd=scratch)
    supported = [each.rsplit(" ", 1)[1] for each in fields["Classifier"] if "Python :: 3." in each]
    for version in versions or supported:
        interpreter = interpreter_of(version)
        if interpreter is None:
            remarks.append(f"Python {version}: it is not installed here")
            continue
        with step(f"Python {version}: install the wheel alone, every name, every --help") as said:
            alone = Environment.make(interpreter, scratch / f"alone-{version}")
            alone.install(str(wheel.path))
            report.dependencies.setdefault(f"without extras, Python {alone.version}", alone.installed())
            said[:] = [f"{alone.import_all(*WITHOUT_EXTRAS)} names, {alone.all_help()} commands"]
        with step(f"Python {version}: the tutorial, from an empty folder") as said:
            alone.install(f"{wheel.path}[test,otel]")
            folder = scratch / f"tutorial-{version}"
            folder.mkdir()
            (folder / "pytest.ini").write_text("[pytest]\n")  # else pytest looks for one in the folders above
            tutorial = [ROOT / "docs" / "tutorial.md", "--folder", folder, "--bin", alone.bin, "--without", "Spark"]
            printed = run(sys.executable, ROOT / "tools" / "follow_page.py", *tutorial, cwd=scratch)
            said[:] = [printed.split(": ")[-1].strip()]
        with step(f"Python {version}: the README's first run, and the examples") as said:
            also = (*_requirements("avro"), *_requirements("pydantic"))
            alone.install("hypothesis", "pytest-timeout", "pytest-xdist", *also)
            printed = run(alone.python, "-m", "pytest", *_QUIETLY, *FIRST_STEPS, cwd=_unpacked(sdist, scratch))
            said[:] = [printed.splitlines()[-1]]
        with step(f"Python {version}: tests of the codec and of what decides about failures") as said:
            printed = run(alone.python, "-m", "pytest", *_QUIETLY, *QUICK_TESTS, cwd=_unpacked(sdist, scratch))
            said[:] = [printed.splitlines()[-1]]
    with step("all extras of users: every public name") as said:
        extras = ",".join(sorted(set(fields["Provides-Extra"]) - NOT_FOR_USERS))
        full = Environment.make(sys.executable, scratch / "full")
        full.install(f"{wheel.path}[{extras}]")
        said[:] = [f"{full.import_all(*PUBLIC_MODULES)} names with [{extras}]"]
        report.dependencies["with all extras of users"] = full.installed()
    with step("tests from the sdist, against the wheel") as said:
        full.install("hypothesis", "pytest-timeout", "pytest-xdist")
        tests = ["tests/sdk/failures", "tests/serdes", "tests/cli/test_broker_command.py"]
        printed = run(full.python, "-m", "pytest", *_QUIETLY, *tests, cwd=_unpacked(sdist, scratch))
        said[:] = [printed.splitlines()[-1]]
    return report


def _unpacked(sdist: Package, scratch: Path) -> Path:
    """The sdist without the packages: what is installed is what is tested."""
    folder = scratch / "sdist"
    if not folder.exists():
        with tarfile.open(sdist.path) as archive:
            archive.extractall(folder, filter="data")
        for package in ("src", "broker_embedded"):
            shutil.rmtree(next(folder.iterdir()) / package)
    (unpacked,) = folder.iterdir()
    return unpacked


def _requirements(extra: str) -> list[str]:
    return list(project()["optional-dependencies"][extra])


def _roots(names: tuple[str, ...]) -> list[str]:
    return sorted({name.split("/")[0] for name in names if ".dist-info" not in name})


if __name__ == "__main__":
    sys.exit(main())
