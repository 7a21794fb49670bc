"""Goals of telemetry, and the names of what `telemetry.py` measures it beside."""

from __future__ import annotations

from judging import Wanted

NO_TELEMETRY = "no telemetry"
INSTRUMENTORS = {
    "confluent_kafka": "opentelemetry-instrumentation-confluent-kafka",
    "aiokafka": "opentelemetry-instrumentation-aiokafka",
}

_ROOTS = (
    "A send outside of any span begins a trace, and its header travels with the record whether the trace is recorded "
    "or not. A consumer that samples by the parent's decision reads it there. The same `send` with one header and no "
    "telemetry has about 0.75 of the rate of one without: the client copies and sends the header. Drawing the ids "
    "and writing them, by the hundred, takes a tenth of a plain `send`. The span of one send in a hundred is made when "
    "it ends, and takes a thirtieth. With a slower sender batches are smaller: the client's thread and the one that "
    "serves its reports take 3.5 to 4.5 µs for each record in place of 2. A span around many sends asks once for all."
)
_UNSAMPLED = (
    "What is recorded is found by the type of its headers, and each record is made the current context, so that what "
    "the handler sends belongs to the trace, and so does what it leaves to tasks and threads: 0.3 µs in a loop by "
    "itself, most of it the context of its own, which one for the whole run cannot replace. The span of one record in "
    "a hundred is made once, when it ends: 0.2 to 0.4 µs for each of the hundred. Between the threads of a service "
    "both take about twice as long. Together they are 2 µs for each record, whatever the handler does: these handlers "
    "only count, so a tenth of what they take is 0.4 µs."
)
_DROPPED = (
    "The handler decides once for each batch of 500 records that no span is recorded, without the SDK, and updates the "
    "instruments. The ratio of CPU times varies from 0.82 to 0.93 between runs. The SDK's objects make a full garbage "
    "collection longer, and the number of collections differs by one between rounds."
)
_API = (
    "With the API alone nothing is called per record: a run asks once whether there is a tracer provider, 2 µs for 500 "
    "records, and a send asks nothing. A full garbage collection has 4 % more objects to look at. One costs a batch "
    "handler what some 7,000 records do, and there are two to five in a round: one more or less is what is seen."
)


def _telemetry() -> list[Wanted]:
    modes = {"API only": 0.97, "1 % of traces, all metrics": 0.9}
    sampled = {"handler": _UNSAMPLED, "batch handler": _DROPPED, "send": _ROOTS}
    rates = [
        Wanted(
            area="telemetry",
            part="telemetry",
            what=f"{workload}, {mode}{figure}",
            figure=least,
            unit=unit,
            peer=NO_TELEMETRY,
            why=_API if mode == "API only" else sampled[workload],
        )
        for workload in ("handler", "batch handler", "send")
        for mode, least in modes.items()
        for figure, unit in (("", "records/s"), (", CPU", "µs per record"))
    ]
    return rates + [
        Wanted(
            area="telemetry",
            part="telemetry",
            what=f"{workload}, CPU that recording every span adds",
            figure=0.9,
            unit="µs per record",
            peer=INSTRUMENTORS[peer],
            why="Recorded spans are the SDK's own, as the instrumentors' are: starting and ending them is nearly all.",
        )
        for workload, peer in (("send", "confluent_kafka"), ("asyncio send", "aiokafka"))
    ]


TELEMETRY: tuple[Wanted, ...] = tuple(_telemetry())
