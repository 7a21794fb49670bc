"""One record fails, and the dead letter topic does not take it. Is it bounded, and does anybody hear of it?"""

from __future__ import annotations

import time

from _java import Service, say
from _kafka import committed, kafka, new_group, new_topic, send, wait_for

PEER = "spring-kafka"

if __name__ == "__main__":
    with kafka("--set", "auto.create.topics.enable=false") as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(5)], keyed=True)
        options = {"bootstrap": bootstrap, "topic": topic, "group": group, "fails": 2, "dead_letters": "true"}
        with Service(PEER, "Service", **options) as service:
            wait_for(lambda: service.calls.count("2") > 0)
            time.sleep(30)
            running = "runs" if service.is_running else "ended"
        say(
            PEER,
            f"30 s after the first time the failing record was delivered {service.calls.count('2')} times, "
            f"{committed(bootstrap, group, topic)} of 5 committed, {len(service.handled)} handled; "
            f"the service {running}",
        )
