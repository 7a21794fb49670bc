"""One partition has a backlog of 20,000 records, another gets 20 a second: how long does one of the latter wait?"""

from __future__ import annotations

import statistics
import time

from _java import Service, say
from _kafka import kafka, new_group, new_topic, send, wait_for

PEER = "spring-kafka"
SECONDS = 10

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap, 2), new_group()
        send(bootstrap, topic, [b"hot" + bytes(97)] * 20_000, partition=0)
        sent: dict[str, float] = {}
        with Service(PEER, "Service", bootstrap=bootstrap, topic=topic, group=group, each_ms=1) as service:
            wait_for(lambda: service.handled, 40)
            until = time.time() + SECONDS
            while time.time() < until:
                name = f"quiet-{len(sent)}"
                sent[name] = time.time()
                send(bootstrap, topic, [name.encode()], partition=1)
                time.sleep(0.05)
            end = time.time()
            service.kill()
        came = {line: at for line, at in zip(service.lines, service.times, strict=True) if line.startswith("handled q")}
        waits = [came.get(f"handled {name}", end) - at for name, at in sent.items()]
        say(
            PEER,
            f"{len(came)} of {len(sent)} records of the quiet partition were handled within {SECONDS} s, they waited "
            f"{statistics.median(waits):.2f} s (median) and {max(waits):.2f} s (longest); "
            f"{len(service.handled)} in all",
        )
