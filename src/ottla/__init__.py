"""Ottla: Kafka for Python services. Safe producing and consuming, dead letters, a broker for tests, a Spark pipeline.

    from ottla import App, Avro

    app = App("billing", bootstrap_servers="localhost:9092", dead_letter_topic="orders.dead-letters")

    @app.handler("orders", value=Avro(Order))
    def on_order(order: Order) -> None: ...

    app.run()

Names are imported when they are first used (PEP 562): `import ottla` loads no Kafka client, and a service that only
consumes never loads what only producers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.aio.consume.consumer import AsyncConsumer as AsyncConsumer
    from ottla.aio.produce.bulk import AsyncBulk as AsyncBulk
    from ottla.aio.produce.delivery import AsyncDelivery as AsyncDelivery
    from ottla.aio.produce.producer import AsyncProducer as AsyncProducer
    from ottla.aio.produce.shared import close_shared_async_producers as close_shared_async_producers
    from ottla.aio.produce.shared import shared_async_producer as shared_async_producer
    from ottla.app import App as App
    from ottla.app import BindingError as BindingError
    from ottla.app import Context as Context
    from ottla.app import Provide as Provide
    from ottla.app import Router as Router
    from ottla.app.background.app_producers import AppProducer as AppProducer
    from ottla.app.background.app_producers import AsyncAppProducer as AsyncAppProducer
    from ottla.app.pull.receive_spans import context_of as context_of
    from ottla.config import TopicSpec as TopicSpec
    from ottla.config.priorities import Priorities as Priorities
    from ottla.consumer import AtMostOnce as AtMostOnce
    from ottla.consumer import CommitPolicy as CommitPolicy
    from ottla.consumer import FlowLimits as FlowLimits
    from ottla.consumer import Health as Health
    from ottla.consumer import InTransactions as InTransactions
    from ottla.consumer import Ordering as Ordering
    from ottla.consumer import Rate as Rate
    from ottla.errors import AuthenticationError as AuthenticationError
    from ottla.errors import BrokerTooOld as BrokerTooOld
    from ottla.errors import BrokerUnavailable as BrokerUnavailable
    from ottla.errors import BufferFull as BufferFull
    from ottla.errors import ConfigError as ConfigError
    from ottla.errors import DeliveryError as DeliveryError
    from ottla.errors import DeliveryPending as DeliveryPending
    from ottla.errors import FencedError as FencedError
    from ottla.errors import InputError as InputError
    from ottla.errors import LifecycleError as LifecycleError
    from ottla.errors import NoCommittedOffset as NoCommittedOffset
    from ottla.errors import OttlaError as OttlaError
    from ottla.errors import RecordTooLarge as RecordTooLarge
    from ottla.errors import RegistryUnavailable as RegistryUnavailable
    from ottla.errors import ResourceUnavailable as ResourceUnavailable
    from ottla.errors import RetriableError as RetriableError
    from ottla.errors import SerializationError as SerializationError
    from ottla.errors import StoreUnavailable as StoreUnavailable
    from ottla.errors import UnknownTopic as UnknownTopic
    from ottla.event_attributes import CloudEvent as CloudEvent
    from ottla.failures import NO_RETRY as NO_RETRY
    from ottla.failures import Ack as Ack
    from ottla.failures import Dead as Dead
    from ottla.failures import DeadLetterBudget as DeadLetterBudget
    from ottla.failures import InvalidRecord as InvalidRecord
    from ottla.failures import Outcome as Outcome
    from ottla.failures import Outcomes as Outcomes
    from ottla.failures import Retry as Retry
    from ottla.failures import RetryPolicy as RetryPolicy
    from ottla.failures import RetryTopics as RetryTopics
    from ottla.failures import Skip as Skip
    from ottla.once.exactly_once import ExactlyOnce as ExactlyOnce
    from ottla.once.inbox import Inbox as Inbox
    from ottla.once.outputs import Out as Out
    from ottla.outbox.outbox import Outbox as Outbox
    from ottla.producer.bulk import Outgoing as Outgoing
    from ottla.producer.deliveries import DeliveryReport as DeliveryReport
    from ottla.producer.signature import BulkOptions as BulkOptions
    from ottla.producer.signature import SendOptions as SendOptions
    from ottla.queues.async_queue import AsyncQueue as AsyncQueue
    from ottla.queues.job import Job as Job
    from ottla.queues.queue import Queue as Queue
    from ottla.records import Header as Header
    from ottla.records import Malformed as Malformed
    from ottla.records import Record as Record
    from ottla.records import TimestampType as TimestampType
    from ottla.records import TopicPartition as TopicPartition
    from ottla.schedule.tasks.task_run import TaskRun as TaskRun
    from ottla.serdes import Avro as Avro
    from ottla.serdes import Bytes as Bytes
    from ottla.serdes import CloudEvents as CloudEvents
    from ottla.serdes import CloudEventType as CloudEventType
    from ottla.serdes import Int64 as Int64
    from ottla.serdes import Json as Json
    from ottla.serdes import Protobuf as Protobuf
    from ottla.serdes import SchemaName as SchemaName
    from ottla.serdes import Serde as Serde
    from ottla.serdes import Str as Str
    from ottla.serdes import TagField as TagField
    from ottla.serdes import TagHeader as TagHeader
    from ottla.sync.consume.consumer import Consumer as Consumer
    from ottla.sync.produce.bulk import Bulk as Bulk
    from ottla.sync.produce.delivery import Delivery as Delivery
    from ottla.sync.produce.producer import Producer as Producer
    from ottla.sync.produce.shared import close_shared_producers as close_shared_producers
    from ottla.sync.produce.shared import shared_producer as shared_producer
    from ottla.telemetry import configure_logging as configure_logging
    from ottla.telemetry import configure_tracing as configure_tracing

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.aio.consume.consumer": ["AsyncConsumer"],
        "ottla.aio.produce.bulk": ["AsyncBulk"],
        "ottla.aio.produce.delivery": ["AsyncDelivery"],
        "ottla.aio.produce.producer": ["AsyncProducer"],
        "ottla.aio.produce.shared": ["close_shared_async_producers", "shared_async_producer"],
        "ottla.app": ["App", "BindingError", "Context", "Provide", "Router"],
        "ottla.app.background.app_producers": ["AppProducer", "AsyncAppProducer"],
        "ottla.app.pull.receive_spans": ["context_of"],
        "ottla.config": ["TopicSpec"],
        "ottla.config.priorities": ["Priorities"],
        "ottla.consumer": ["AtMostOnce", "CommitPolicy", "FlowLimits", "Health", "InTransactions", "Ordering", "Rate"],
        "ottla.errors": [
            "AuthenticationError",
            "BrokerTooOld",
            "BrokerUnavailable",
            "BufferFull",
            "ConfigError",
            "DeliveryError",
            "DeliveryPending",
            "FencedError",
            "InputError",
            "LifecycleError",
            "NoCommittedOffset",
            "OttlaError",
            "RecordTooLarge",
            "RegistryUnavailable",
            "ResourceUnavailable",
            "RetriableError",
            "SerializationError",
            "StoreUnavailable",
            "UnknownTopic",
        ],
        "ottla.event_attributes": ["CloudEvent"],
        "ottla.failures": [
            "NO_RETRY",
            "Ack",
            "Dead",
            "DeadLetterBudget",
            "InvalidRecord",
            "Outcome",
            "Outcomes",
            "Retry",
            "RetryPolicy",
            "RetryTopics",
            "Skip",
        ],
        "ottla.once.exactly_once": ["ExactlyOnce"],
        "ottla.once.inbox": ["Inbox"],
        "ottla.once.outputs": ["Out"],
        "ottla.outbox.outbox": ["Outbox"],
        "ottla.producer.bulk": ["Outgoing"],
        "ottla.producer.deliveries": ["DeliveryReport"],
        "ottla.producer.signature": ["BulkOptions", "SendOptions"],
        "ottla.queues.async_queue": ["AsyncQueue"],
        "ottla.queues.job": ["Job"],
        "ottla.queues.queue": ["Queue"],
        "ottla.records": ["Header", "Malformed", "Record", "TimestampType", "TopicPartition"],
        "ottla.schedule.tasks.task_run": ["TaskRun"],
        "ottla.serdes": [
            "Avro",
            "Bytes",
            "CloudEvents",
            "CloudEventType",
            "Int64",
            "Json",
            "Protobuf",
            "SchemaName",
            "Serde",
            "Str",
            "TagField",
            "TagHeader",
        ],
        "ottla.sync.consume.consumer": ["Consumer"],
        "ottla.sync.produce.bulk": ["Bulk"],
        "ottla.sync.produce.delivery": ["Delivery"],
        "ottla.sync.produce.producer": ["Producer"],
        "ottla.sync.produce.shared": ["close_shared_producers", "shared_producer"],
        "ottla.telemetry": ["configure_logging", "configure_tracing"],
    },
)
