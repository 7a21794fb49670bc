"""Each process of the suite imports the files whose tests it runs: all of them would take it a fifth of its time.

Processes that share the tests have to agree on one list of them. Here it comes from a file of ids, which one process
has collected before (`make collected`). A file of tests is collected by the process that runs it, when its turn comes.
Its tests must be those of the list then: all of them fail if they are not.

What the list does not name is collected at once, as always: a file that is new, or has no test.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class FilesInTurn:
    """A plugin of the processes that run tests, not of the one that hands them out."""

    def __init__(self, list_of_tests: Path) -> None:
        """Raises `pytest.UsageError` if the list cannot be read."""
        try:
            lines = list_of_tests.read_text("utf-8").splitlines()
        except OSError as problem:
            raise pytest.UsageError(f"--listed-tests: {problem}; `make collected` writes it") from problem
        self._tests: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            path, separator, name = line.partition("::")
            if separator and path.endswith(".py"):
                self._tests[path].append(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: Any) -> pytest.Collector | None:
        path = module_path.relative_to(parent.config.rootpath).as_posix()
        if path not in self._tests:
            return None
        return ListedFile.from_parent(parent, path=module_path, names=self._tests[path])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        session.items = _InTurn(session.items)


class ListedFile(pytest.File):
    """A file of tests that is not imported yet."""

    def __init__(self, *, names: list[str], **named: Any) -> None:
        super().__init__(**named)
        self._names = names
        self._collected: dict[str, pytest.Item] | None = None
        self.problem = ""

    def collect(self) -> Iterator[pytest.Item]:
        for name in self._names:
            yield ListedTest.from_parent(self, name=name)

    def collected(self) -> dict[str, pytest.Item]:
        """Its tests by their ids; none of them if they are not what the list says, and `problem` says so."""
        if self._collected is None:
            self._collected = self._collect_now()
        return self._collected

    def _collect_now(self) -> dict[str, pytest.Item]:
        module = pytest.Module.from_parent(self.parent, path=self.path)
        gc.disable()  # as in `tests/conftest.py`: what is imported stays
        try:
            items = list(self.session.genitems(module))
            self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=items)
        finally:
            gc.collect()  # what is frozen is never collected: garbage of the tests before would leak, and not warn
            gc.freeze()
            gc.enable()
        found = {item.nodeid: item for item in items}
        listed = {f"{self.nodeid}::{name}" for name in self._names}
        if found.keys() == listed:
            return found
        if not found:
            self.problem = f"{self.nodeid} cannot be collected"
        else:
            differing = ", ".join(sorted(found.keys() ^ listed)[:5])
            self.problem = f"the list of tests is of other files, `make collected` writes a new one: {differing}"
        return {}


class ListedTest(pytest.Item):
    """A test until its turn comes. It runs only if its file is not what the list says, and fails."""

    @property
    def _file(self) -> ListedFile:
        assert isinstance(self.parent, ListedFile)
        return self.parent

    def in_its_turn(self) -> pytest.Item:
        return self._file.collected().get(self.nodeid, self)

    @property
    def fixturenames(self) -> list[str]:
        """Those of the test: whoever asks for them has its file collected."""
        test = self.in_its_turn()
        return [] if test is self else list(getattr(test, "fixturenames", ()))

    def runtest(self) -> None:
        pytest.fail(self._file.problem, pytrace=False)


class _InTurn(list[pytest.Item]):
    """Items, each of which becomes the test itself when somebody takes it out to run it."""

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return item.in_its_turn() if isinstance(item, ListedTest) else item
