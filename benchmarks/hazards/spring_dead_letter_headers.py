"""spring-kafka writes a dead letter with its own recoverer: what does Ottla read from its headers?"""

from __future__ import annotations

import time

from _java import Service, say
from _kafka import kafka, new_group, new_topic, send, wait_for

from ottla.browse.topic_reader import TopicReader
from ottla.failures import describe_dead_letter

PEER = "spring-kafka"

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(5)], keyed=True)
        options = {"bootstrap": bootstrap, "topic": topic, "group": group, "fails": 2, "dead_letters": "true"}
        with Service(PEER, "Service", **options) as service:
            wait_for(lambda: len(service.handled) == 4, 40)
            time.sleep(2)
        with TopicReader(bootstrap, f"{topic}-dlt") as reader:
            (letter,) = reader.take(1)
        view = describe_dead_letter(letter.headers)
        assert view is not None
        origin = view.origin.replace(topic, "topic")
        group = "its group" if view.group == group else f"group {view.group}"
        say(
            PEER,
            f"read as: {origin}, {group}, {view.error_type}: {view.message}, "
            f"{len(view.stack_trace or '')} characters of stack trace",
        )
