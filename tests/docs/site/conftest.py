"""The documentation as a site, built once for all tests that look at it: a process of the suite runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the site was built in, from nothing and without a problem: there, pages that do not change are
    not made of Markdown again.
    """
    build = tmp_path_factory.mktemp("docs-site")
    done = subprocess.run(
        [sys.executable, "-m", "docs_site", "build", "--build", str(build)],
        env={"PYTHONPATH": str(ROOT / "tools"), "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "0 problems" in done.stdout
    return build


@pytest.fixture(scope="session")
def built_site(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, apart from that folder: what is served there makes its own."""
    return (build / "site").rename(tmp_path_factory.mktemp("built") / "site")
