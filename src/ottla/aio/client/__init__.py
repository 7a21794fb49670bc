"""What every asyncio client of the shell needs: errors in Ottla's words, reachability, throttling, the end of tasks."""

from __future__ import annotations

from aiokafka.abc import AbstractTokenProvider

from ottla.tokens.aiokafka import AiokafkaTokens

AbstractTokenProvider.register(AiokafkaTokens)
