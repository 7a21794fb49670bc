"""The archive of Spark's classes: which one is taken, which one never, and that none is left half made.

`make test` makes a real one before the tests (`ottla pipeline prepare`), and the session that they share runs from it.
Here a small process stands for the JVM: it writes its archive when the pipe into it is closed, as a JVM does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner
from pyspark import SparkContext

from ottla.cli import main
from ottla.errors import LifecycleError
from ottla.spark.jvm import class_archive as archives
from ottla.spark.jvm.class_archive import (
    SUBMIT_OPTIONS,
    NoClassArchive,
    archive_options,
    class_archive,
    make_class_archive,
    started_from_archive,
)
from ottla.spark.jvm.java import Java, find_java

CLASSES = b"the classes"


@pytest.fixture
def java(tmp_path_factory):
    """A Java that writes an archive."""
    return a_java(tmp_path_factory.mktemp("java"), 'touch "${1#*=}"')


def a_java(home, script):
    (home / "bin").mkdir()
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
    return Java(home=home, version=17, origin="PATH")


class Gateway:
    def __init__(self, script, path):
        self.proc = subprocess.Popen([sys.executable, "-c", script, path], stdin=subprocess.PIPE)

    def shutdown(self):
        pass


class Session:
    def stop(self):
        pass


@pytest.fixture
def ends_with(monkeypatch):
    """An exercise that starts a process, which runs a script when the pipe into it is closed."""
    started = []

    def make(script, error=None):
        def exercise():
            path = os.environ[SUBMIT_OPTIONS].partition("ArchiveClassesAtExit=")[2].rstrip('"')
            gateway = Gateway(f"import sys; sys.stdin.read(); path = sys.argv[1]; {script}", path)
            started.append(gateway.proc)
            monkeypatch.setattr(SparkContext, "_gateway", gateway)
            if error is not None:
                raise error
            return Session()

        return exercise

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.delenv(SUBMIT_OPTIONS, raising=False)
    yield make
    assert all(process.poll() is not None for process in started), "the JVM was left alone"


WRITES = f"open(path, 'wb').write({CLASSES!r})"


def test_an_archive_is_there_when_it_is_whole(ends_with, tmp_path, java):
    made = make_class_archive(java, ends_with(WRITES), folders=(tmp_path,))

    assert made.read_bytes() == CLASSES
    assert class_archive(java, folders=(tmp_path,)) == made
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    assert SUBMIT_OPTIONS not in os.environ


def test_it_takes_the_place_of_the_one_before(ends_with, tmp_path, java):
    before = make_class_archive(java, ends_with(WRITES), folders=(tmp_path,))
    made = make_class_archive(java, ends_with("open(path, 'wb').write(b'more of them')"), folders=(tmp_path,))

    assert not before.exists()
    assert class_archive(java, folders=(tmp_path,)) == made


def test_an_archive_that_was_cut_off_is_never_taken(ends_with, tmp_path, java):
    """A JVM would believe it, and end with SIGBUS."""
    made = make_class_archive(java, ends_with(WRITES), folders=(tmp_path,))
    made.write_bytes(CLASSES[:-1])

    assert class_archive(java, folders=(tmp_path,)) is None


def test_an_archive_belongs_to_one_java(ends_with, tmp_path, java):
    make_class_archive(java, ends_with(WRITES), folders=(tmp_path,))

    assert class_archive(Java(home=Path("/opt/other"), version=17, origin="PATH"), folders=(tmp_path,)) is None


@pytest.mark.parametrize("script", ["sys.exit(1)", f"{WRITES}; sys.exit(1)", "pass"])
def test_a_jvm_that_wrote_none_is_an_error_and_leaves_nothing(ends_with, tmp_path, script, java):
    with pytest.raises(NoClassArchive, match="wrote no archive of its classes"):
        make_class_archive(java, ends_with(script), folders=(tmp_path,))

    assert list(tmp_path.iterdir()) == []


def test_a_java_that_cannot_is_an_error_before_anything_runs(ends_with, tmp_path):
    home = tmp_path / "java"
    home.mkdir()
    with pytest.raises(NoClassArchive, match=r"Java 17 at .* wrote no archive of its classes: unsupported"):
        make_class_archive(a_java(home, "echo unsupported"), ends_with(WRITES), folders=(tmp_path / "made",))
    assert list((tmp_path / "made").iterdir()) == []


def test_an_exercise_that_fails_ends_its_jvm_at_once_and_leaves_nothing(ends_with, tmp_path, java):
    with pytest.raises(ValueError, match="no such column"):
        make_class_archive(java, ends_with(WRITES, error=ValueError("no such column")), folders=(tmp_path,))

    assert list(tmp_path.iterdir()) == []
    assert SUBMIT_OPTIONS not in os.environ


def test_what_a_killed_process_left_is_swept_up_and_another_ones_is_not(ends_with, tmp_path, java):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = tmp_path / f".spark-classes-0123456789ab-{gone.pid}"
    others = tmp_path / f".spark-classes-0123456789ab-{os.getppid()}"
    left.touch()
    others.touch()
    make_class_archive(java, ends_with(WRITES), folders=(tmp_path,))

    assert not left.exists()
    assert others.exists()


def test_the_next_folder_is_taken_where_one_cannot_be_written(ends_with, tmp_path, java):
    (tmp_path / "file").touch()
    folders = (tmp_path / "file" / "ottla", tmp_path / "home")
    made = make_class_archive(java, ends_with(WRITES), folders=folders)

    assert made.parent == tmp_path / "home"
    assert class_archive(java, folders=folders) == made
    with pytest.raises(NoClassArchive, match=r"can be written: .*Not a directory"):
        make_class_archive(java, ends_with(WRITES), folders=folders[:1])


def test_a_process_that_has_a_jvm_is_refused(monkeypatch, tmp_path, java):
    monkeypatch.setattr(SparkContext, "_gateway", object())
    with pytest.raises(LifecycleError, match="already runs Spark's JVM"):
        make_class_archive(java, Session, folders=(tmp_path,))


def test_sessions_start_from_it_unless_another_archive_was_chosen(monkeypatch, tmp_path, java):
    made = tmp_path / "some classes.jsa"
    monkeypatch.setattr(archives, "class_archive", lambda java: made)
    monkeypatch.setenv(SUBMIT_OPTIONS, "-Dmine=1")
    with started_from_archive(java):
        assert os.environ[SUBMIT_OPTIONS] == f"-Dmine=1 {archive_options(made)}"
    assert os.environ[SUBMIT_OPTIONS] == "-Dmine=1"

    monkeypatch.setenv(SUBMIT_OPTIONS, "-XX:SharedArchiveFile=/mine.jsa")
    with started_from_archive(java):
        assert os.environ[SUBMIT_OPTIONS] == "-XX:SharedArchiveFile=/mine.jsa"


def test_the_command_says_what_is_there(monkeypatch, tmp_path):
    made = tmp_path / "classes.jsa"
    monkeypatch.setattr(archives, "class_archive", lambda java: None)
    missing = CliRunner().invoke(main, ["pipeline", "prepare", "--options"])
    assert missing.exit_code == 2
    assert "`ottla pipeline prepare` makes it" in missing.output

    monkeypatch.setattr(archives, "class_archive", lambda java: made)
    assert f"Spark starts from {made}, made before" in CliRunner().invoke(main, ["pipeline", "prepare"]).output
    options = CliRunner().invoke(main, ["pipeline", "prepare", "--options"])
    assert options.output.strip() == archive_options(made)


def test_where_java_writes_none_the_command_may_go_on(monkeypatch):
    def refused(java, exercise):
        raise NoClassArchive("Java 17 wrote no archive of its classes (it ended with 0)")

    monkeypatch.setattr(archives, "class_archive", lambda java: None)
    monkeypatch.setattr(archives, "make_class_archive", refused)
    assert CliRunner().invoke(main, ["pipeline", "prepare"]).exit_code == 2
    tried = CliRunner().invoke(main, ["pipeline", "prepare", "--if-possible"])
    assert tried.exit_code == 0
    assert "Spark starts as it always did: Java 17 wrote no archive" in tried.output


@pytest.mark.spark
def test_the_jvm_of_a_session_runs_from_the_archive(spark):
    archive = class_archive(find_java())
    if archive is None:
        pytest.skip("needs an archive of Spark's classes: `ottla pipeline prepare` makes one, `make test` runs it")
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc, which tells what a process has mapped")
    assert str(archive) in maps.read_text()
