"""Compaction: of each key only the last value stays; offsets never change."""

from __future__ import annotations

from broker_embedded.storage.cleaner.cleaner import Cleaning
from broker_embedded.storage.cleaner.log_cleaner import LogCleaner
from broker_embedded.storage.cleaner.selection import LogToClean, log_to_clean

__all__ = ["Cleaning", "LogCleaner", "LogToClean", "log_to_clean"]
