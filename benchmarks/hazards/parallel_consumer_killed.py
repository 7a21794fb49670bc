"""The process is killed while it works through a backlog. How many records come again?"""

from __future__ import annotations

from _java import Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

PEER = "parallel-consumer"

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(400)], keyed=True)
        options = {"bootstrap": bootstrap, "topic": topic, "group": group, "each_ms": 20, "workers": 4}
        with Service(PEER, "Service", **options) as first:
            wait_for(lambda: len(first.handled) >= 200, 40)
            first.kill()
        at_kill = committed(bootstrap, group, topic)
        with Service(PEER, "Service", **options, **{"session.timeout.ms": 6_000}) as second:
            wait_for(lambda: len({*first.handled, *second.handled}) == 400, 90)
        again = len(set(first.handled) & set(second.handled))
        say(
            PEER,
            f"killed after {len(first.handled)} of 400 were handled, {at_kill} committed: {again} were handled again, "
            f"{400 - len({*first.handled, *second.handled})} not at all",
        )
