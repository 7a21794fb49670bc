"""Declared pipelines: one definition as a stream, a bounded batch, a replay. See `definition.py`."""

from ottla.spark.pipeline.definition import Pipeline as Pipeline
from ottla.spark.pipeline.frames import unique as unique
from ottla.spark.pipeline.running import NotCaughtUp as NotCaughtUp
from ottla.spark.pipeline.running import PipelineFailed as PipelineFailed
from ottla.spark.pipeline.running import Running as Running
