"""Shared parts of the asyncio clients: errors, reachability, throttling, the end of tasks."""

from __future__ import annotations

import ottla.aio.client.logins_with_tokens  # noqa: F401  # before any client is made
