"""What happens to a record that fails: outcomes, retries, dead letters, their budget and the way back. Pure."""

from ottla.delivery.budget import BudgetMeter, DeadLetterBudget
from ottla.delivery.dead_letter import DeadLetterReason, DeadLetterRecord, build_dead_letter
from ottla.delivery.exceptions import ExceptionTable, Failure
from ottla.delivery.failure import Decision, FailurePolicy
from ottla.delivery.foreign import DeadLetterView, describe_dead_letter
from ottla.delivery.outcomes import Ack, Dead, InvalidRecord, Outcome, Retry, Skip
from ottla.delivery.redrive import Redrive, build_redrive
from ottla.delivery.retry import NO_RETRY, RetryPolicy
from ottla.delivery.retry_topics import RetryTopics
from ottla.delivery.selection import DeadLetterFilter

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
    "Redrive",
    "Retry",
    "RetryPolicy",
    "RetryTopics",
    "Skip",
    "build_dead_letter",
    "build_redrive",
    "describe_dead_letter",
]
