"""What does a batch that claims to be far larger than its bytes cost each client: memory, time, and what a user sees?

    python benchmarks/bombs.py [--mb 200] [--seconds 20] [--codec zstd ...] [--client threads ...]

For each codec a topic holds a small record, a batch of zeros that inflates to `--mb` MiB, and a small record. For each
client a process of its own reads it: a service in threads, one on asyncio, and the columnar reader. Printed: the bytes
of the batch, the most memory that the process took above what it had before, its time, and what it had read or said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import servers

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kit"))

CODECS = ["gzip", "snappy", "lz4", "zstd"]
CLIENTS = ["threads", "asyncio", "columnar"]
MIB = 2**20


def fill(bootstrap: str, codec: str, mb: int) -> int:
    """Returns the bytes of the batch."""
    from confluent_kafka.admin import AdminClient, NewTopic
    from wire_client import WireClient

    from ottla_wire.protocol import ApiKey
    from ottla_wire.records import CompressionType, RecordData, encode_batch

    topic = f"bombs-{codec}"
    settings = {"max.message.bytes": str(64 * MIB)}  # snappy makes zeros twenty times smaller only
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result()
    now_ms = round(time.time() * 1000)
    client = WireClient(bootstrap, timeout_s=60)
    size = 0
    for value, compression in ((1, "none"), (mb * MIB, codec), (1, "none")):
        record = RecordData(0, now_ms, b"k", bytes(value), [])
        batch = encode_batch([record], compression=CompressionType[compression.upper()])
        size = max(size, len(batch))
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        answer = client.call(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 30_000, "topic_data": data})
        code = answer.responses[0].partition_responses[0].error_code
        if code:
            print(f"{codec}: the broker refuses the batch with error {code}", file=sys.stderr)
    client.close()
    return size


def memory_mb(which: str) -> float:
    """VmRSS: now. VmHWM: at most, since this program began; what `getrusage` says counts the parent's memory too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{which}:"))


def read(client: str, bootstrap: str, codec: str, seconds: float) -> dict[str, object]:
    """In a process of its own."""
    begun = time.monotonic()
    topic = f"bombs-{codec}"
    seen: list[int] = []
    said = ""
    if client == "columnar":
        import ottla.columnar

        before = memory_mb("VmRSS")
        try:
            for batch in ottla.columnar.read(topic, bootstrap_servers=bootstrap, columns=["value"]):
                seen += [len(value) for value in batch.column("value").to_pylist()]
        except Exception as error:  # what a user sees
            said = f"{type(error).__name__}: {error}"
    else:
        from ottla import App

        app = App(f"bombs-{codec}-{client}", bootstrap_servers=bootstrap, unready_after_s=2.0)

        @app.handler(topic)
        def handle(value: bytes) -> None:
            seen.append(len(value))

        def watch() -> None:
            nonlocal said
            while time.monotonic() < begun + seconds and len(seen) < 3:
                time.sleep(0.1)
                if app._runner is not None and not (health := app.health()).is_ready and health.problems:
                    said = "; ".join(health.problems)
            app.stop()

        before = memory_mb("VmRSS")
        threading.Thread(target=watch).start()
        if client == "threads":
            app.run(handle_signals=False)
        else:
            asyncio.run(app.serve())
    return {"grown_mb": memory_mb("VmHWM") - before, "seconds": time.monotonic() - begun, "seen": seen, "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200, help="MiB that the batch inflates to")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a service is given")
    parser.add_argument("--codec", nargs="*", choices=CODECS, default=CODECS)
    parser.add_argument("--client", nargs="*", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--read", nargs=3, metavar=("CLIENT", "BOOTSTRAP", "CODEC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(*options.read, options.seconds)))
        return
    with servers.started("ottla", [*servers.OTTLA, "--port", "0"]) as broker:
        for codec in options.codec:
            size = fill(broker.bootstrap, codec, options.mb)
            print(f"{codec}: {size:,} bytes that become {options.mb} MiB", flush=True)
            for client in options.client:
                command = [sys.executable, __file__, "--seconds", str(options.seconds)]
                child = subprocess.run(
                    [*command, "--read", client, broker.bootstrap, codec],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                if child.returncode:
                    print(f"  {client:9} ended with code {child.returncode}", flush=True)
                    continue
                found = json.loads(child.stdout.splitlines()[-1])
                told = f"; {found['said']}" if found["said"] else ""
                print(
                    f"  {client:9} {found['grown_mb']:6.0f} MiB more, {found['seconds']:5.1f} s, "
                    f"records of {found['seen']} bytes{told}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
