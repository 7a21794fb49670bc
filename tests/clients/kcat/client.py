"""kcat, a command line tool: what the other programs do by calls, this one does by running it.

What the programs of this folder do and print is said in tests/kit/foreign_client.py. A run of kcat is one producer, one
member or one transaction, which is committed at the end of its input and aborted when it is interrupted.
"""

from __future__ import annotations

import ctypes
import json
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Sequence

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK = 50
POLL_S = 0.05
PARTITIONS = 3

_libc = ctypes.CDLL(None)


def say(*words: object) -> None:
    print(*words, sep="\t", flush=True)


def ends_with_its_parent() -> None:
    """`kill -9` of this program is to be one of kcat."""
    set_parent_death_signal = 1
    _libc.prctl(set_parent_death_signal, signal.SIGKILL)


class Kcat:
    """How kcat is called for one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def start(self, *arguments: str, settings: Sequence[str] = (), **pipes: int) -> subprocess.Popen[str]:
        options = [option for setting in settings for option in ("-X", setting)]
        return subprocess.Popen(
            ["kcat", "-b", self._bootstrap, *options, *arguments], text=True, preexec_fn=ends_with_its_parent, **pipes
        )

    def producer(self, topic: str, codec: str, *settings: str) -> subprocess.Popen[str]:
        """Sends `key TAB value` lines."""
        every = ("acks=all", "enable.idempotence=true", "linger.ms=5", "message.timeout.ms=60000", *settings)
        return self.start("-q", "-P", "-t", topic, "-z", codec, "-K", "\t", settings=every, stdin=subprocess.PIPE)

    def read(self, *arguments: str, settings: Sequence[str] = ()) -> str:
        """What it prints; tried again while a broker that it needs is being replaced."""
        for _ in range(100):
            done = self.start(*arguments, settings=settings, stdout=subprocess.PIPE)
            output, _ = done.communicate()
            if done.returncode == 0:
                return output
            time.sleep(POLL_S)
        raise SystemExit(f"kcat {' '.join(arguments)} fails again and again")

    def values(self, topic: str, isolation_level: str) -> list[str]:
        """All that is in the log now."""
        return self.read(
            *("-q", "-C", "-e", "-o", "beginning", "-f", r"%s\n", "-t", topic),
            settings=[f"isolation.level={isolation_level}"],
        ).split()


def write(running: subprocess.Popen[str], lines: Iterable[str]) -> None:
    assert running.stdin is not None
    running.stdin.writelines(lines)
    running.stdin.flush()


def finish(running: subprocess.Popen[str]) -> None:
    """At the end of its input it waits for every acknowledgement."""
    assert running.stdin is not None
    running.stdin.close()
    code = running.wait()
    if code != 0:
        raise SystemExit(f"kcat ended with {code}")


def told() -> threading.Event:
    event = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def records(first: int) -> list[str]:
    return [f"k{n}\t{n}:{'v' * 200}\n" for n in range(first, first + CHUNK)]


def produce(bootstrap: str, topic: str) -> None:
    kcat = Kcat(bootstrap)
    (known,) = json.loads(kcat.read("-L", "-J", "-t", topic))["topics"]
    say("created", len(known["partitions"]))
    sent = 0

    def send_each_codec() -> None:
        nonlocal sent
        for codec in CODECS:
            running = kcat.producer(topic, codec)
            write(running, records(sent))
            finish(running)
            sent += CHUNK

    send_each_codec()
    running = kcat.producer(topic, "lz4")
    say("half", sent)
    stop = told()
    while not stop.wait(POLL_S):
        write(running, records(sent))
        sent += CHUNK
    finish(running)
    send_each_codec()
    say("produced", sent)


def consume(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    del protocol  # it knows one
    stop = told()
    settings = ["auto.offset.reset=earliest", "auto.commit.interval.ms=100", "session.timeout.ms=6000"]
    member = Kcat(bootstrap).start(
        *("-G", group, "-u", "-f", r"%p\t%o\t%k\t%h\t%s\n", topic),
        settings=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def tell_assignments() -> None:
        assert member.stderr is not None
        for line in member.stderr:
            print(line, end="", file=sys.stderr)
            if "rebalanced" in line and "assigned:" in line and "revoked" not in line:
                say("assigned", ",".join(re.findall(r"\[(\d+)\]", line)))

    def end_when_told() -> None:
        stop.wait()
        member.send_signal(signal.SIGTERM)

    for work in (tell_assignments, end_when_told):
        threading.Thread(target=work, daemon=True).start()
    assert member.stdout is not None
    for line in member.stdout:
        partition, offset, key, headers, value = line.rstrip("\n").split("\t")
        say("record", partition, offset, key, headers.removeprefix("n="), value.partition(":")[0])
    member.wait()
    say("closed")


def key_of(partition: int) -> str:
    """One that its default partitioner, CRC32, puts there. Long, because kcat reads its input by the kilobyte."""
    keys = (f"{n:01000}" for n in range(100))
    return next(key for key in keys if zlib.crc32(key.encode()) % PARTITIONS == partition)


def transaction(kcat: Kcat, topic: str, name: str, *, transactional_id: str) -> subprocess.Popen[str]:
    """It is open, and in the log are its nine records but the last: kcat sends a line when it has seen the next."""
    running = kcat.producer(topic, "none", f"transactional.id={transactional_id}")
    values = [f"{name}-{n}" for n in range(9)]
    write(running, (f"{key_of(n % PARTITIONS)}\t{value}\n" for n, value in enumerate(values)))
    while not set(values[:-1]) <= set(kcat.values(topic, "read_uncommitted")):
        time.sleep(POLL_S)
    return running


def abort(running: subprocess.Popen[str]) -> None:
    """It notices the interruption with its next input, or the end of that; whoever has the id next finishes it."""
    assert running.stdin is not None
    running.send_signal(signal.SIGINT)
    running.stdin.close()
    running.wait()


def transact(bootstrap: str, topic: str, transactional_id: str, phase: str) -> None:
    kcat = Kcat(bootstrap)
    if phase == "second":
        finish(transaction(kcat, topic, "taken-over", transactional_id=transactional_id))
        for value in kcat.values(topic, "read_committed"):
            say("value", value)
        say("closed")
        return
    go_on = told()
    for number in range(6):
        running = transaction(kcat, topic, f"t{number}", transactional_id=transactional_id)
        if number % 2:
            abort(running)
        else:
            finish(running)
        if number == 2:
            say("half")
            go_on.wait()
    transaction(kcat, topic, "open", transactional_id=transactional_id)
    say("open")
    threading.Event().wait()


if __name__ == "__main__":
    {"produce": produce, "consume": consume, "transact": transact}[sys.argv[1]](*sys.argv[2:])
