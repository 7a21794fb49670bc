"""Three records of one key, the first fails once and goes through a retry topic: in which order are they handled?"""

from __future__ import annotations

from _java import Service, say
from _kafka import kafka, new_group, new_topic, send, wait_for

PEER = "spring-kafka"

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"first", b"second", b"third"], key=b"one key")
        with Service(PEER, "RetryTopics", bootstrap=bootstrap, topic=topic, group=group, fails_once="first") as service:
            wait_for(lambda: len(service.handled) == 3, 60)
        say(
            PEER,
            f"the first of three records of one key failed once: they were handled as {', '.join(service.handled)}",
        )
