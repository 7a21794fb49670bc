"""franz-go and sarama: a record of 20 kB for a topic that takes 10 kB. Needs Go, which fetches both."""

from __future__ import annotations

import subprocess
from pathlib import Path

from _kafka import kafka, new_topic

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap, max_message_bytes="10000")
        subprocess.run(["go", "run", ".", bootstrap, topic], cwd=Path(__file__).parent / "go", check=True)
