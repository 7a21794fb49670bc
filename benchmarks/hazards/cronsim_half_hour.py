"""The clock of Lord Howe Island is set back by half an hour. Is a task of every three hours due at three?"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from _kafka import found
from cronsim import CronSim

if __name__ == "__main__":
    due = CronSim("0 */3 * * *", datetime(2025, 4, 5, 23, tzinfo=ZoneInfo("Australia/Lord_Howe")))
    times = ", ".join(f"{next(due):%H:%M}" for _ in range(4))
    found("cronsim", text=f"0 */3 * * * on 6 April 2025, when 02:00 is set back to 01:30: due at {times}")
