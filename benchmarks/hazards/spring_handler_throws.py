"""One of ten records always fails, default error handler. What becomes of it, and what is committed?"""

from __future__ import annotations

import time

from _java import Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

PEER = "spring-kafka"

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(10)], keyed=True)
        with Service(PEER, "Service", bootstrap=bootstrap, topic=topic, group=group, fails=4) as service:
            wait_for(lambda: len(service.handled) == 9, 25)
            time.sleep(15)
        say(
            PEER,
            f"the failing record was delivered {service.calls.count('4')} times; {len(service.handled)} of 10 handled, "
            f"{committed(bootstrap, group, topic)} of 10 committed",
        )
