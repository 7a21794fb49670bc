"""Hypothesis profiles (HYPOTHESIS_PROFILE: `thorough`, `brisk` for `make check`), and how processes share the tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from ottla.telemetry.logs import log_sink
from ottla.telemetry.logs.event_log import check_events_with, forget_what_repeats
from ottla.telemetry.logs.log_events import problem_of

if TYPE_CHECKING:
    from xdist.scheduler.loadscope import LoadScopeScheduling

ONE_PROCESS = ("tests/spark/", "tests/docs/site/")
"""Folders whose files share what is started or built once: Spark's JVM, the documentation's site."""


def pytest_configure(config: pytest.Config) -> None:
    """A run in the background inherits an ignored SIGINT, and so would the processes whose Ctrl-C is tested."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    check_events_with(_check)


def _load_hypothesis() -> None:
    from hypothesis import HealthCheck, settings

    # The same examples for the same code, so that a run can be repeated. `thorough` looks for others.
    quick = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", quick)
    settings.register_profile("brisk", settings.get_profile("quick"), max_examples=8)
    settings.register_profile("thorough", max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


_is_hypothesis_loaded = False


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Before the first file of properties is imported: a file that has none starts without what tries properties."""
    global _is_hypothesis_loaded
    if _is_hypothesis_loaded or not isinstance(collector, pytest.Module):
        return
    if "hypothesis" in sys.modules or b"hypothesis" in collector.path.read_bytes():
        _load_hypothesis()
        _is_hypothesis_loaded = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hypothesis's plugin would load all of Hypothesis to say nothing. Processes beside this one may have used it."""
    plugins = session.config.pluginmanager
    if "hypothesis" not in sys.modules and not session.config.getoption("numprocesses", None):
        plugins.unregister(name="hypothesispytest")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collecting makes a million objects that all stay: the garbage collector would look at them again and again, now
    and in every test. Where tests are only listed, none of them needs what Hypothesis's plugin looks for in the source
    of every module: a tenth of the time.
    """
    if session.config.option.collectonly:
        session.config.pluginmanager.unregister(name="hypothesispytest")
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "run all tests without those that are complete (make test), or only these (make test-all runs both)"
    parser.addoption("--complete", choices=["without", "only"], help=what)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choice = config.getoption("--complete")
    if choice is None:
        return
    kept = [item for item in items if _is_complete(item) == (choice == "only")]
    config.hook.pytest_deselected(items=[item for item in items if _is_complete(item) != (choice == "only")])
    if choice == "without" and not any("::" in argument for argument in config.args):
        _check_representatives(items, kept)
    items[:] = sorted(kept, key=_place_of_files(kept))


def _is_complete(item: pytest.Item) -> bool:
    """Return whether only `make test-all` runs a test: it is marked `complete`, or starts a JVM or a browser, and
    represents no family. `representative("an id")` of a parametrized test is that one case; the others are complete."""
    representative = item.get_closest_marker("representative")
    if representative is not None and representative.args:
        callspec = getattr(item, "callspec", None)
        return callspec is not None and _parts(callspec.id) not in map(_parts, representative.args)
    is_marked = any(item.get_closest_marker(name) for name in ("complete", "spark", "browser"))
    return is_marked and representative is None


def _parts(case: str) -> list[str]:
    """Return the parts of a case's id. Their order is another one when all files are collected than with one file."""
    return sorted(case.split("-"))


def _check_representatives(items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Raise `UsageError` for a function whose `representative` names no case: no case of it would run."""
    has_cases = {item.nodeid.partition("[")[0] for item in kept}
    for item in items:
        if item.get_closest_marker("representative") and item.nodeid.partition("[")[0] not in has_cases:
            raise pytest.UsageError(f"{item.nodeid}: found no case that its representative mark names")


def _place_of_files(items: list[pytest.Item]) -> Callable[[pytest.Item], tuple[bool, int]]:
    """Return a sort key: files with representatives, which start whole services, and those with a test that may take
    ten minutes come first, then large files. A file of one long test would otherwise run last, beside idle processes.
    """
    tests = Counter(item.path for item in items)
    long = {item.path for item in items if item.get_closest_marker("representative") or _limit_s(item) >= 600}
    return lambda item: (item.path not in long, -tests[item.path])


def _limit_s(item: pytest.Item) -> float:
    """Return the seconds after which a test is ended, if it has a limit of its own."""
    limit = item.get_closest_marker("timeout")
    return limit.args[0] if limit is not None and limit.args else 0.0


_unknown_events: list[str] = []


def _check(event: str, level: str, fields: Mapping[str, object]) -> None:
    problem = problem_of(event, level, fields)
    if problem is not None:
        _unknown_events.append(problem)  # raised by the test: here it would end a thread of what is tested


_session: pytest.Session


def pytest_sessionstart(session: pytest.Session) -> None:
    global _session
    _session = session


def _forget_modules(newest: str, path: list[str]) -> None:
    from forgotten_modules import forget_modules

    # A fixture of this for each test would take longer than all the rest.
    folders = _session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    forget_modules(str(folders), newest=newest, path=path)


def _forget_the_logging_of_a_program(handler: logging.Handler) -> None:
    logging.root.removeHandler(handler)
    log_sink.OTTLA.setLevel(logging.NOTSET)
    log_sink._format, log_sink._is_chosen = "auto", False


@pytest.fixture(autouse=True)
def _nothing_is_left_for_the_next_test() -> Iterator[None]:
    """What a test logs is what the table says, and is neither limited nor sent elsewhere by what other tests did: to
    capture events is to configure structlog, and `ottla run` configures the logging of its process. What a test
    imported from a folder of its own is not found by a test that writes a module of the same name.
    """
    forget_what_repeats()
    newest, path = next(reversed(sys.modules)), sys.path.copy()
    yield
    if next(reversed(sys.modules)) != newest or sys.path != path:  # hardly ever: this is done for each test
        _forget_modules(newest, path)
    structlog: Any = sys.modules.get("structlog")  # most tests log nothing
    if structlog is not None and structlog.is_configured():
        structlog.reset_defaults()
    for handler in logging.root.handlers:
        if isinstance(handler, log_sink.StandardLogging):
            _forget_the_logging_of_a_program(handler)
            break
    unknown, _unknown_events[:] = list(_unknown_events), []
    assert not unknown, unknown[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """A file stays in one process, so that its brokers start once; so do all files of `ONE_PROCESS`."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in ONE_PROCESS if file.startswith(folder)), file)

    return ByFile(config, log)
