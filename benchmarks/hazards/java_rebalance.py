"""A second member joins while the first works. Is every record handled, and any of them twice?"""

from __future__ import annotations

import time

from _java import CONSUMERS, Service, say
from _kafka import kafka, new_group, new_topic, send, wait_for

EACH_MS = {"spring-kafka": 10, "parallel-consumer": 100}
"""One handles a record at a time, the other sixteen."""

if __name__ == "__main__":
    with kafka() as bootstrap:
        for peer in CONSUMERS:
            topic, group = new_topic(bootstrap, 4), new_group()
            for partition in range(4):
                values = [b"%d-%d" % (partition, number) for number in range(500)]
                send(bootstrap, topic, values, partition=partition, keyed=True)
            options = {"bootstrap": bootstrap, "topic": topic, "group": group, "each_ms": EACH_MS[peer]}
            with Service(peer, "Service", **options) as first:
                wait_for(lambda: len(first.handled) >= 50, 40)
                with Service(peer, "Service", **options) as second:
                    wait_for(lambda: len({*first.handled, *second.handled}) == 2_000, 90)
                    time.sleep(3)
                    done = [*first.handled, *second.handled]
                    seen = f"{len(set(done))} of 2,000 handled, {len(done) - len(set(done))} of them twice"
                say(peer, f"{seen} ({len(second.handled)} by the second member)")
