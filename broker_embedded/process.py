"""The broker as a process, for other languages and for speed: `python -m broker_embedded`.

Prints one line on stdout when clients can connect, `ready bootstrap=127.0.0.1:PORT[,...]`; everything else goes to
stderr. With `--control-port` a second line follows, `control=http://127.0.0.1:PORT`: faults, brokers, links, disks,
time and waits as JSON (`cluster.control`). Ends on SIGTERM or SIGINT with exit code 0 and closed logs; exit code 2
means that it could not start with what it was given.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from broker_embedded.cluster.cluster import Cluster
from broker_embedded.cluster.openness import what_is_open
from broker_embedded.cluster.time import new_event_loop
from broker_embedded.common.descriptors import raise_soft_limit
from broker_embedded.common.errors import StartupError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.process_options import GENERAL, SECURITY
from broker_embedded.server.requests.warm_up import warm_up
from broker_embedded.storage.file_pool import OpenFiles

if TYPE_CHECKING:
    from broker_embedded.cluster.control import ControlServer
    from broker_embedded.cluster.time import VirtualClock
    from broker_embedded.security.settings import Security
    from broker_embedded.security.web_tokens import OAuthBearer

log = logging.getLogger("broker_embedded")

EXIT_OK = 0
EXIT_CANNOT_START = 2


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartupError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code."""
    try:
        options = _options(arguments)
        logging.basicConfig(
            stream=sys.stderr, level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        raise_soft_limit()
        open_files = OpenFiles()
        files: FileSystem | None = None
        if options.control_port is None and options.log_dir_bytes is None:  # no disk can fail, and none has a limit
            files = OsFileSystem(fsync=options.data_dir is not None, make_room=open_files.make_room)
        clock = None if options.virtual_clock is None else _clock(options.virtual_clock)
        security = _security(options)
        cluster = Cluster(
            brokers=options.brokers,
            port=options.port,
            ports=_numbers("--ports", options.ports, "numbers below 65536", below=65_536),
            first_broker_id=options.first_broker_id,
            advertised_host=options.advertised_host,
            listen_host=options.listen,
            data_dir=options.data_dir,
            racks=None if options.racks is None else options.racks.split(","),
            log_dirs=options.log_dirs,
            log_dir_bytes=_numbers("--log-dir-bytes", options.log_dir_bytes, "numbers of bytes"),
            config=_pairs("--set", options.set, "KEY=VALUE"),
            clock=clock,
            filesystem=None if files is None else lambda node: files,
            open_files=open_files,
            security=security,
        )
        control = None if options.control_port is None else _control(cluster, options.control_port)
        with asyncio.Runner(loop_factory=lambda: new_event_loop(clock)) as runner:
            runner.run(_serve(cluster, control, options.topics, listen_host=options.listen, security=security))
    except StartupError as error:
        sys.stderr.write(f"broker_embedded: {error}\n")
        return EXIT_CANNOT_START
    except KeyboardInterrupt:
        return EXIT_OK
    return EXIT_OK


def _clock(speed: float) -> VirtualClock:
    """Imported only if wanted, like the control API."""
    from broker_embedded.cluster.time import VirtualClock

    if not 0 <= speed < float("inf"):
        raise StartupError(f"--virtual-clock: found {speed:g}, wanted 0 (frozen) or more")
    return VirtualClock(speed=speed)


def _control(cluster: Cluster, port: int) -> ControlServer:
    """The control API. Loaded only if it is wanted, as a process shall start quickly."""
    from broker_embedded.cluster.control import ControlServer
    from broker_embedded.cluster.control.local import LocalControl

    if not 0 <= port < 65_536:  # before the cluster writes to its folder
        raise StartupError(f"--control-port: found {port}, wanted 0 to 65535")
    return ControlServer(LocalControl(cluster), port=port)


async def _serve(
    cluster: Cluster,
    control: ControlServer | None,
    topics: Sequence[str],
    *,
    listen_host: str,
    security: Security | None,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await cluster.start()
    try:
        if topics:
            from broker_embedded.cluster.new_topics import create_topics, parse_topics

            await create_topics(cluster, parse_topics(topics))
        if control is not None:
            await control.start()
        opened = what_is_open(listen_host, cluster.ports, security)
        if opened is not None:
            sys.stderr.write(f"broker_embedded: {opened}\n")
        sys.stdout.write(f"ready bootstrap={cluster.bootstrap_servers}\n")
        if control is not None:
            sys.stdout.write(f"control={control.url}\n")
        sys.stdout.flush()
        warm_up(loop, on_done=_collect_from_now_on)
        await stopped.wait()
    finally:
        if control is not None:
            await control.stop()
        await cluster.stop()


def _collect_from_now_on() -> None:
    """Freeze the objects of the start: visiting them in each collection would block the loop for 15 ms."""
    gc.freeze()
    gc.enable()


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse makes one for every option, and loads `shutil`, with all that archives need, to ask for its width."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        columns = 0
    return argparse.HelpFormatter(prog, width=(columns or 80) - 2)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. Raises StartupError for unknown options, without their values: the value of a misspelt
    --user is a password."""
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        names = [each.partition("=")[0] for each in unknown if each.startswith("-")]
        raise StartupError(f"unrecognized arguments: {' '.join(names) or 'values without an option'}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _ArgumentParser(
        prog="broker_embedded",
        description="An embedded Kafka broker on loopback.",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    security = parser.add_argument_group("security", "Who may connect. Anybody, in plain text, if nothing is said.")
    for group, options in ((parser, GENERAL), (security, SECURITY)):
        for each in options:
            group.add_argument(
                each.name,
                help=each.help if each.default is None else f"{each.help} Default: {each.default}.",
                metavar=each.metavar or "|".join(each.choices or ()),
                type=each.kind,
                choices=each.choices if group is parser else None,  # `Security` checks its own, with better words
                action="append" if each.is_repeated else "store",
                default=[] if each.is_repeated else each.default,
                nargs=None if each.alone is None else "?",
                const=each.alone,
            )
    return parser


def _security(options: argparse.Namespace) -> Security | None:
    """Return the security that the options request; its module is imported only then."""
    from pathlib import Path

    users: dict[str, str] = {}
    if options.user or options.users is not None:
        from broker_embedded.security.users_file import pairs_in, users_of

        in_file = [] if options.users is None else pairs_in(Path(options.users), "--users")
        users = users_of({"--user": options.user, "--users": in_file})
    named: dict[str, Any] = {
        "users": users,
        "mechanisms": tuple(options.sasl_mechanism),
        "oauth": _oauth(_pairs("--oauth", options.oauth, "NAME=VALUE")),
        "max_reauth_ms": _reauth(_pairs("--max-reauth-ms", options.max_reauth_ms, "MECHANISM=MS")),
        "certificate": options.certificate,
        "key": options.key,
        "client_ca": options.client_ca,
        "client_auth": options.client_auth,
    }
    if options.certificates is not None:
        if options.certificate is not None or options.client_ca is not None:
            raise StartupError("--certificates has the files that --certificate and --client-ca would name")
        from broker_embedded.cluster.certificates import found_or_made

        found = found_or_made(Path(options.certificates))
        named |= {"certificate": found.server, "client_ca": found.ca}
    given = {name: value for name, value in named.items() if value}
    if options.security_protocol is None:
        if given:
            raise StartupError(f"{', '.join(given)}: --security-protocol is missing, SSL, SASL_PLAINTEXT or SASL_SSL")
        return None
    from broker_embedded.security.settings import Security

    return Security(options.security_protocol, **given)


def _oauth(given: dict[str, str]) -> OAuthBearer | None:
    """Return which tokens are accepted; None where nothing is given."""
    if not given:
        return None
    from broker_embedded.security.web_tokens import OAuthBearer

    lists = ("audience", "scope")
    texts = ("jwks", "jwks_ca", "issuer", "principal_claim", "scope_claim")
    named: dict[str, Any] = {}
    for name, text in given.items():
        if name in lists:
            named[name] = tuple(filter(None, text.split(",")))
        elif name in texts:
            named[name] = text
        elif name == "clock_skew_s":
            if not (text.isascii() and text.isdigit() and len(text) < 6):
                raise StartupError(f"--oauth: clock_skew_s: found {text!r}, wanted a whole number of seconds")
            named[name] = float(text)
        else:
            raise StartupError(f"--oauth: found {name!r}, wanted one of {', '.join((*lists, *texts, 'clock_skew_s'))}")
    return OAuthBearer(named.pop("jwks", None), **named)


def _reauth(given: dict[str, str]) -> dict[str, int]:
    for name, text in given.items():
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise StartupError(f"--max-reauth-ms: {name}: found {text!r}, wanted a whole number of milliseconds")
    return {name: int(text) for name, text in given.items()}


def _numbers(option: str, text: str | None, wanted: str, *, below: int = 10**18) -> list[int] | None:
    if text is None:
        return None
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) < 19 and int(each) < below for each in numbers):
        raise StartupError(f"{option}: found {text!r}, wanted {wanted} with commas between them")
    return [int(each) for each in numbers]


def _pairs(option: str, pairs: Sequence[str], wanted: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise StartupError(f"{option}: found {pair!r}, wanted {wanted}")
        if key in found:
            raise StartupError(f"{option}: found {key!r} twice, wanted it once")
        found[key] = value
    return found
