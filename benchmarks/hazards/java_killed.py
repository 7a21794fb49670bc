"""The process is killed while it works through a backlog. How many records come again?"""

from __future__ import annotations

from _java import CONSUMERS, Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

if __name__ == "__main__":
    with kafka() as bootstrap:
        for peer in CONSUMERS:
            topic, group = new_topic(bootstrap), new_group()
            send(bootstrap, topic, [b"%d" % number for number in range(400)], keyed=True)
            options = {"bootstrap": bootstrap, "topic": topic, "group": group, "each_ms": 20, "workers": 4}
            with Service(peer, "Service", **options) as first:
                wait_for(lambda: len(first.handled) >= 200, 40)
                first.kill()
            at_kill = committed(bootstrap, group, topic)
            with Service(peer, "Service", **options, **{"session.timeout.ms": 6_000}) as second:
                wait_for(lambda: len({*first.handled, *second.handled}) == 400, 90)
            again = len(set(first.handled) & set(second.handled))
            say(
                peer,
                f"killed after {len(first.handled)} of 400 were handled, {at_kill} committed: "
                f"{again} were handled again, {400 - len({*first.handled, *second.handled})} not at all",
            )
