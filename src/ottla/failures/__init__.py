"""Failure handling of records: outcomes, retries, dead letters, their budget, and the redrive. Pure."""

from ottla.failures.budget import BudgetMeter, DeadLetterBudget
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, build_dead_letter
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.failure import Decision, FailurePolicy
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.outcomes import Ack, Dead, InvalidRecord, Outcome, Outcomes, Retry, Skip
from ottla.failures.redrive import Redrive, build_redrive
from ottla.failures.retry import NO_RETRY, RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.failures.selection import DeadLetterFilter

__all__ = [
    "NO_RETRY",
    "Ack",
    "BudgetMeter",
    "Dead",
    "DeadLetterBudget",
    "DeadLetterFilter",
    "DeadLetterReason",
    "DeadLetterRecord",
    "DeadLetterView",
    "Decision",
    "ExceptionTable",
    "Failure",
    "FailurePolicy",
    "InvalidRecord",
    "Outcome",
    "Outcomes",
    "Redrive",
    "Retry",
    "RetryPolicy",
    "RetryTopics",
    "Skip",
    "build_dead_letter",
    "build_redrive",
    "describe_dead_letter",
]
