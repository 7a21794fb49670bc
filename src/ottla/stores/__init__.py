"""Stores of processed messages and offsets: databases and Redis. A driver is imported when its store is first used.

from ottla.stores import Postgres

store = Postgres("postgresql://localhost/billing")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.stores.memory import Memory as Memory
    from ottla.stores.postgres import Postgres as Postgres
    from ottla.stores.protocols import AsyncClaimSession as AsyncClaimSession
    from ottla.stores.protocols import AsyncTransactionSession as AsyncTransactionSession
    from ottla.stores.protocols import ClaimSession as ClaimSession
    from ottla.stores.protocols import ClaimStore as ClaimStore
    from ottla.stores.protocols import Start as Start
    from ottla.stores.protocols import Store as Store
    from ottla.stores.protocols import TransactionSession as TransactionSession
    from ottla.stores.protocols import TransactionStore as TransactionStore
    from ottla.stores.redis import Redis as Redis
    from ottla.stores.sqlalchemy import Sql as Sql
    from ottla.stores.sqlite import Sqlite as Sqlite

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.stores.memory": ["Memory"],
        "ottla.stores.postgres": ["Postgres"],
        "ottla.stores.protocols": [
            "AsyncClaimSession",
            "AsyncTransactionSession",
            "ClaimSession",
            "ClaimStore",
            "Start",
            "Store",
            "TransactionSession",
            "TransactionStore",
        ],
        "ottla.stores.redis": ["Redis"],
        "ottla.stores.sqlalchemy": ["Sql"],
        "ottla.stores.sqlite": ["Sqlite"],
    },
)
