"""Regular expressions from users: matched in linear time, whatever the pattern.

Python's `re` backtracks: `(a+)+b` against 40 times `a` holds the interpreter, and with it every thread and the signal
that would end the process, for days. RE2 walks a text once, with the interpreter's lock released. What cannot be
matched so (back references, look-around, possessive repetition) is refused, as Kafka's brokers refuse it (KIP-848).

Pattern and text are UTF-8, so `.` and `[éü]` take a whole character, and `(?i)` folds letters of all scripts; `\\w`,
`\\d`, `\\s` and `\\b` know ASCII, `\\pL` all letters, and `$` is the very end of the text. A byte that is not UTF-8 is
matched by `\\C` alone. Syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from typing import Any, Final

from ottla.errors import InputError

MOST_CHARACTERS: Final = 1_000
MOST_STATES: Final = 1_500
"""Of the automaton. Each costs some 15 ns for each byte of a text at worst: 20 s for a megabyte, with the lock
released."""


class Pattern:
    """A compiled pattern; used from any thread."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str, *, name: str) -> None:
        """Raise InputError for a pattern that is invalid or that RE2 cannot match; `name` is its option's name."""
        import re2  # a C++ extension: only those commands load it that are given a pattern

        self.pattern = pattern
        if len(pattern) > MOST_CHARACTERS:
            raise InputError(
                f"{name}: found a regular expression of {len(pattern):,} characters, wanted at most {MOST_CHARACTERS:,}"
            )
        options = re2.Options()
        options.log_errors = False  # or the library writes to standard error itself
        options.never_capture = True
        try:
            source = pattern.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise _refused(name, pattern, "it has a surrogate") from None
        if not pattern.isascii() and any("\udc80" <= each <= "\udcff" for each in pattern):
            options.encoding = re2.Options.Encoding.LATIN1  # an argument in another encoding: byte by byte
        try:
            self._compiled: Any = re2.compile(source, options)
        except re2.error as error:
            raise _refused(name, pattern, _reason(error)) from None
        if self._compiled.programsize > MOST_STATES:
            states = f"{self._compiled.programsize:,} states"
            raise _refused(name, pattern, f"it becomes an automaton of {states}, and at most {MOST_STATES:,} are run")

    def is_in(self, data: bytes) -> bool:
        """Return whether the pattern matches somewhere in these bytes."""
        return self._compiled.search(data) is not None

    def is_in_text(self, text: str) -> bool:
        """Return whether the pattern matches somewhere in this text."""
        return self._compiled.search(text.encode("utf-8", "surrogatepass")) is not None

    def is_whole(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return self._compiled.fullmatch(text.encode("utf-8", "surrogatepass")) is not None


def _refused(name: str, pattern: str, why: str) -> InputError:
    shown = pattern if len(pattern) <= 100 else pattern[:100] + "…"
    return InputError(
        f"{name}: found {shown!r}, wanted a regular expression as RE2 takes it, "
        f"without back references and look-around: {why}"
    )


def _reason(error: Exception) -> str:
    found = error.args[0] if error.args else ""
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
