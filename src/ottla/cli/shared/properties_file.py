"""Files of client settings (`--config-file`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.bounded_files import read_bounded
from ottla.cli.shared.output import say
from ottla.cli.shared.visible import visible
from ottla.errors import ConfigError

_MOST_FILE_BYTES: Final = 1024 * 1024


def read_properties(path: str | Path, *, role: str | None = None) -> dict[str, str]:
    """Return settings of a file as Kafka's own tools take it, by this package's names. ConfigError never shows a value.

    Such files are often shared with other clients: settings of those, and of the Java client alone, are left out and
    named on stderr. `role` is that of the client beside the admin client.
    """
    from ottla.config.catalog import Role, known_names
    from ottla.config.java_names import from_java, is_of_java_alone
    from ottla.config.properties import parse_properties

    data, _ = read_bounded(path, _MOST_FILE_BYTES, wanted="lines of NAME=VALUE", error=ConfigError)
    try:
        found = from_java(parse_properties(data, source=str(path)))
    except ConfigError as error:
        raise error if str(error).startswith(f"{path}: ") else ConfigError(f"{path}: {error}") from None
    if found.get("ssl.endpoint.identification.algorithm") == "":  # Java's word for none
        found["ssl.endpoint.identification.algorithm"] = "none"
    own = known_names(Role.ADMIN) | (frozenset() if role is None else known_names(Role(role)))
    known = frozenset[str]().union(*map(known_names, Role))
    unused = [name for name in found if name not in own and (name in known or is_of_java_alone(name))]
    if unused:
        say(visible(f"{path}: not used here: {', '.join(sorted(unused))}"))
    return {name: value for name, value in found.items() if name not in unused}
