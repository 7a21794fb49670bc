"""Declared pipelines: one definition as a stream, a bounded batch, a replay. See `definition.py`."""

from ottla.spark.pipeline.definition import Pipeline
from ottla.spark.pipeline.frames import unique
from ottla.spark.pipeline.running import NotCaughtUp, PipelineFailed, Running

__all__ = ["NotCaughtUp", "Pipeline", "PipelineFailed", "Running", "unique"]
