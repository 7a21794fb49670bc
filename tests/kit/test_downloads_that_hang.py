"""A download that does not end skips the tests that need it, and leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import foreign_packages
import pytest


def program(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\nexec sleep 600\n")
    file.chmod(0o755)
    return file


def test_jars_that_do_not_come_are_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    import maven_jars

    program(tmp_path / "mvn", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(maven_jars, "_FETCH_S", 0.1)
    with pytest.raises(maven_jars.Unavailable, match=r"s3a\.pom\.xml from Maven Central: mvn did not end in 0\.1 s"):
        maven_jars.maven_jars("s3a.pom.xml", tmp_path)


@pytest.mark.complete
def test_a_package_that_does_not_come_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installer has its folder before it hangs."""
    cache, begun = tmp_path / "cache", tmp_path / "begun"
    cache.mkdir()
    text = f'while [ "$1" != --target ]; do shift; done; mkdir "$2" && touch "$2/part" {begun}'
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", text)))
    monkeypatch.setattr(foreign_packages, "CACHE", cache)
    monkeypatch.setattr(foreign_packages, "_INSTALL_S", 3)
    with pytest.raises(pytest.skip.Exception, match="pip install did not end in 3 s"):
        foreign_packages.folder_of("gmqtt==0.8.0")
    assert begun.exists()
    assert not list(cache.iterdir())
