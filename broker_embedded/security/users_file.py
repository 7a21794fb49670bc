"""Files of users: an argument with a password is seen by other users of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from broker_embedded.common.errors import StartupError

_MOST_BYTES: Final = 1024 * 1024


def pairs_in(path: Path, option: str) -> list[str]:
    """Return the pairs NAME=PASSWORD of a file, one for each line that is not empty.

    Raises StartupError that names the option and the line, without the password.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:  # before it is decoded: the cut may be within a character
            raise StartupError(f"{option} {path}: found more than {_MOST_BYTES:,} bytes, wanted a file of users")
        lines = data.decode("utf-8-sig").split("\n")  # splitlines() would cut a password at U+0085 and the like
    except UnicodeDecodeError:
        raise StartupError(f"{option} {path}: wanted text in UTF-8") from None
    except OSError as error:
        raise StartupError(f"{option} {path}: cannot be read: {error.strerror}") from None
    pairs = []
    for number, line in enumerate((each.removesuffix("\r") for each in lines), 1):
        if not line.strip():
            continue
        name, equals, password = line.partition("=")
        if not name or not equals or not password:
            raise StartupError(f"{option} {path}, line {number}: wanted NAME=PASSWORD")
        pairs.append(line)
    return pairs


def users_of(options: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the passwords by user. Of each option that gives users there are the pairs NAME=PASSWORD.

    Raises StartupError, without a password, for what is no pair and for a name that is given twice.
    """
    passwords: dict[str, str] = {}
    given_in: dict[str, str] = {}
    for option, pairs in options.items():
        for pair in pairs:
            name, equals, password = pair.partition("=")
            if not name or not equals or not password:
                raise StartupError(f"{option}: wanted NAME=PASSWORD")  # whatever was given may be a password
            before = given_in.setdefault(name, option)
            if name in passwords and before == option:
                raise StartupError(f"{option}: found {name!r} twice, wanted it once")
            if name in passwords:
                raise StartupError(f"found {name!r} in {before} and in {option}, wanted one of them")
            passwords[name] = password
    return passwords
