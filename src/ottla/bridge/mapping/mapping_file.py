"""The mapping in a TOML file.

    dead-letter-topic = "bridge.dead-letters"

    [[map]]
    from = "sensors/+/temp"
    to = "temperature"
    key = "{1}"
    headers = { unit = "celsius" }
    value = "json"

`value` is `json`, `str`, or `module:name` of a serde. Errors name the file and the entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.bridge.mapping.rules import Rule, is_topic_name
from ottla.errors import ConfigError
from ottla.serdes.base import Serde
from ottla.serdes.builtin import Str
from ottla.serdes.choice import as_serde
from ottla.serdes.json import Json

_MOST_BYTES: Final = 4 * 1024 * 1024
KEYS: Final[Mapping[str, str]] = {
    "dead-letter-topic": "where messages go that Kafka or a serde refuses; `--dead-letter-topic` is stronger",
    "map": "the rules, each a `[[map]]`. The first whose filter matches decides; those of `--map` come before",
}
"""The keys of a file, and what they mean."""

KEYS_OF_RULE: Final[Mapping[str, str]] = {
    "from": "a filter of topics with `+` and `#`, or of routing keys, with a slash for each dot",
    "to": "the Kafka topic. It must exist",
    "key": 'the record\'s key; `{topic}` by default, `""` for records without a key',
    "headers": "a table of further headers",
    "value": "`json`, `str`, or `module:name` of a serde; without it the payload is written as it is",
}
"""The keys of a rule. `to`, `key` and headers may have `{1}`, `{topic}`, `{client}`, `{user}`, `{origin}` in them."""

FindSerde = Callable[[str], Any]
"""Returns the object that `module:name` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingFile:
    """What a mapping file says."""

    rules: tuple[Rule, ...]
    dead_letter_topic: str | None = None

    @property
    def topics(self) -> list[str]:
        """Return the Kafka topics that are named outright, the dead letter topic among them."""
        names = {rule.to.text for rule in self.rules if not rule.to.names}
        return sorted(names | ({self.dead_letter_topic} if self.dead_letter_topic else set()))


def read_mapping(path: str | Path, find: FindSerde) -> MappingFile:
    """Return the mapping of a file. Raises `ConfigError`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"{path}: found more than {_MOST_BYTES:,} bytes")
        found = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error
    return mapping_of(found, place=str(path), find=find)


def mapping_of(found: Mapping[str, Any], *, place: str, find: FindSerde) -> MappingFile:
    """Return the mapping of a table. Raises `ConfigError`."""
    _check_names(found, KEYS, place)
    dead = found.get("dead-letter-topic")
    if dead is not None and not (isinstance(dead, str) and is_topic_name(dead)):
        raise ConfigError(f"{place}: dead-letter-topic: found {dead!r}, wanted the name of a Kafka topic")
    entries = found.get("map")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{place}: wanted at least one [[map]] with `from` and `to`")
    rules = [_rule(entry, f"{place}: map {number}", find) for number, entry in enumerate(entries, 1)]
    return MappingFile(rules=tuple(rules), dead_letter_topic=dead)


def rule_of_option(text: str) -> Rule:
    """Return the rule of `--map 'sensors/+/temp=temperature'`, or with `=KEY` behind it. Raises `ConfigError`."""
    parts = text.split("=")
    if len(parts) not in (2, 3) or not all(parts[:2]):
        raise ConfigError(
            f"--map: found {text!r}, wanted FILTER=TOPIC or FILTER=TOPIC=KEY, as sensors/+/temp=temp={{1}}"
        )
    return Rule(parts[0], parts[1], key=(parts[2] or None) if len(parts) == 3 else "{topic}", name=f"--map {text}")


def serde_named(name: str, place: str, find: FindSerde) -> Serde[Any]:
    """Return the serde of `json`, `str` or `module:name`. Raises `ConfigError`."""
    if name == "json":
        return Json()
    if name == "str":
        return Str()
    if ":" not in name:
        raise ConfigError(f"{place}: found {name!r}, wanted json, str or module:name of a serde")
    try:
        return as_serde(find(name))
    except TypeError as error:
        raise ConfigError(f"{place}: {error}") from error


def _rule(entry: Any, place: str, find: FindSerde) -> Rule:
    if not isinstance(entry, dict):
        raise ConfigError(f"{place}: found {entry!r}, wanted a table")
    _check_names(entry, KEYS_OF_RULE, place)
    for name in ("from", "to"):
        if not isinstance(entry.get(name), str):
            raise ConfigError(f"{place}: {name}: found {entry.get(name)!r}, wanted text")
    key, headers, value = entry.get("key", "{topic}"), entry.get("headers", {}), entry.get("value")
    if not isinstance(key, str):
        raise ConfigError(f"{place}: key: found {key!r}, wanted text; empty for records without a key")
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise ConfigError(f"{place}: headers: found {headers!r}, wanted names and texts")
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{place}: value: found {value!r}, wanted json, str or module:name of a serde")
    return Rule(
        entry["from"],
        entry["to"],
        key=key or None,
        headers=headers,
        value=None if value is None else serde_named(value, f"{place}: value", find),
        name=place,
    )


def _check_names(found: Mapping[str, Any], known: Mapping[str, str], place: str) -> None:
    unknown = sorted(set(found) - known.keys())
    if unknown:
        raise ConfigError(f"{place}: found {', '.join(unknown)}, wanted only {', '.join(sorted(known))}")
