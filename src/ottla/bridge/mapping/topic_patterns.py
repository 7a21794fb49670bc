"""Filters of MQTT topics: `+` stands for one level, `#` at the end for all that follow."""

from __future__ import annotations

from ottla.errors import ConfigError


class TopicPattern:
    """One filter. Matching takes time in proportion to the number of levels."""

    __slots__ = ("_has_rest", "_levels", "text")

    def __init__(self, text: str, place: str = "pattern") -> None:
        levels = text.split("/")
        for number, level in enumerate(levels, 1):
            is_last = number == len(levels)
            if "+" in level and level != "+":
                raise ConfigError(f"{place}: found {text!r}, where + is only a part of level {number}")
            if "#" in level and not (level == "#" and is_last):
                raise ConfigError(f"{place}: found {text!r}, wanted # only as the whole last level")
        if not text or "\0" in text:
            raise ConfigError(f"{place}: found {text!r}, wanted a topic filter as in sensors/+/temp")
        self.text = text
        self._has_rest = levels[-1] == "#"
        self._levels = levels[:-1] if self._has_rest else levels

    @property
    def wildcards(self) -> int:
        """Return the number of + and #."""
        return self._levels.count("+") + self._has_rest

    def match(self, topic: str) -> list[str] | None:
        """Return what each wildcard stands for, or None. `$SYS/...` is matched by no filter that begins with one."""
        found = topic.split("/")
        wanted = self._levels
        if len(found) < len(wanted) or (len(found) > len(wanted) and not self._has_rest):
            return None
        if topic.startswith("$") and self.text[0] in "+#":
            return None
        captured = []
        for level, each in zip(wanted, found, strict=False):
            if level == "+":
                captured.append(each)
            elif level != each:
                return None
        if self._has_rest:
            captured.append("/".join(found[len(wanted) :]))
        return captured
