"""Failure handling of records: outcomes, retries, dead letters, their budget, and the redrive. Pure."""

from ottla.failures.budget import BudgetMeter as BudgetMeter
from ottla.failures.budget import DeadLetterBudget as DeadLetterBudget
from ottla.failures.dead_letter import DeadLetterReason as DeadLetterReason
from ottla.failures.dead_letter import DeadLetterRecord as DeadLetterRecord
from ottla.failures.dead_letter import build_dead_letter as build_dead_letter
from ottla.failures.exceptions import ExceptionTable as ExceptionTable
from ottla.failures.exceptions import Failure as Failure
from ottla.failures.failure import Decision as Decision
from ottla.failures.failure import FailurePolicy as FailurePolicy
from ottla.failures.foreign import DeadLetterView as DeadLetterView
from ottla.failures.foreign import describe_dead_letter as describe_dead_letter
from ottla.failures.outcomes import Ack as Ack
from ottla.failures.outcomes import Dead as Dead
from ottla.failures.outcomes import InvalidRecord as InvalidRecord
from ottla.failures.outcomes import Outcome as Outcome
from ottla.failures.outcomes import Outcomes as Outcomes
from ottla.failures.outcomes import Retry as Retry
from ottla.failures.outcomes import Skip as Skip
from ottla.failures.redrive import Redrive as Redrive
from ottla.failures.redrive import build_redrive as build_redrive
from ottla.failures.retry import NO_RETRY as NO_RETRY
from ottla.failures.retry import RetryPolicy as RetryPolicy
from ottla.failures.retry_topics import RetryTopics as RetryTopics
from ottla.failures.selection import DeadLetterFilter as DeadLetterFilter
