"""Effectively-once handlers: message ids, the inbox, and runs that are one database transaction.

Everything here decides; it knows no database, no clock and no thread. `ottla.app.once.once_invoker` carries it out.
"""

from __future__ import annotations

from ottla.once.inbox import Inbox as Inbox
