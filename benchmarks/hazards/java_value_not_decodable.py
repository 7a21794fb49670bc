"""The third of five values cannot be decoded (three bytes where an int has four). Does the partition go on?"""

from __future__ import annotations

import time

from _java import CONSUMERS, Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

if __name__ == "__main__":
    with kafka() as bootstrap:
        for peer in CONSUMERS:
            topic, group = new_topic(bootstrap), new_group()
            values = [number.to_bytes(4, "big") for number in range(5)]
            send(bootstrap, topic, [*values[:2], b"bad", *values[3:]], keyed=True)
            with Service(peer, "Service", bootstrap=bootstrap, topic=topic, group=group, values="int") as service:
                wait_for(lambda: service.count("undecodable") > 0)
                time.sleep(10)
                ended = ", closed or failed" if service.count("closed or failed") else ""
            say(
                peer,
                f"10 s after the first time the value was decoded {service.count('undecodable')} times; "
                f"{len(set(service.handled))} of the other 4 handled, "
                f"{committed(bootstrap, group, topic)} of 5 committed{ended}",
            )
