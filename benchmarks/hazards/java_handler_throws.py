"""One of ten records always fails, with default settings: is it retried or dropped, and what is committed?"""

from __future__ import annotations

import time

from _java import CONSUMERS, Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

if __name__ == "__main__":
    with kafka() as bootstrap:
        for peer in CONSUMERS:
            topic, group = new_topic(bootstrap), new_group()
            send(bootstrap, topic, [b"%d" % number for number in range(10)], keyed=True)
            with Service(peer, "Service", bootstrap=bootstrap, topic=topic, group=group, fails=4) as service:
                wait_for(lambda: len(service.handled) == 9, 25)
                time.sleep(15)
            say(
                peer,
                f"the failing record was delivered {service.calls.count('4')} times; "
                f"{len(service.handled)} of 10 handled, {committed(bootstrap, group, topic)} of 10 committed",
            )
