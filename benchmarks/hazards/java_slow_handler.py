"""A handler is slower than `max.poll.interval.ms` (here 6 s), and there are two members. Is the record handled once?"""

from __future__ import annotations

import time

from _java import CONSUMERS, Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

if __name__ == "__main__":
    with kafka() as bootstrap:
        for peer in CONSUMERS:
            topic, group = new_topic(bootstrap), new_group()
            options = {"bootstrap": bootstrap, "topic": topic, "group": group, "slow": "slow", "slow_ms": 9_000}
            limits = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
            with (
                Service(peer, "Service", **options, **limits) as first,
                Service(peer, "Service", **options, **limits) as second,
            ):
                time.sleep(12)  # both have joined
                send(bootstrap, topic, [b"slow"], keyed=True)
                wait_for(lambda: len(first.handled) + len(second.handled) > 0, 40)
                time.sleep(20)
                seen = (
                    f"{len(first.calls) + len(second.calls)} times, {committed(bootstrap, group, topic)} of 1 committed"
                )
            say(
                peer,
                f"a handler of 9 s, max.poll.interval.ms 6 s, two members: within 30 s one record was delivered {seen}",
            )
