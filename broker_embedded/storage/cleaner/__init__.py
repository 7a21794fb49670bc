"""Compaction: of each key only the last value stays; offsets never change."""

from __future__ import annotations

from broker_embedded.storage.cleaner.cleaner import Cleaning as Cleaning
from broker_embedded.storage.cleaner.log_cleaner import LogCleaner as LogCleaner
from broker_embedded.storage.cleaner.selection import LogToClean as LogToClean
from broker_embedded.storage.cleaner.selection import log_to_clean as log_to_clean
