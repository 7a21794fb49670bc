"""Tokens for SASL OAUTHBEARER: one source per process, whichever clients use it.

    source.py      `TokenSource`: when to fetch, when to renew, what a failure means. Pure.
    shared.py      `Tokens`: the source with threads around it; `tokens_of(settings)` returns the process's one.
    settings.py    Kafka's setting names for it, read and checked.
    token.py       `Token`, and what a JSON web token says of itself.
    oidc.py, callables.py, files.py, unsecured.py, msk_iam.py   where tokens come from
    confluent.py   how librdkafka is handed tokens; aiokafka.py the same for aiokafka

Nothing is fetched before a client asks for a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.tokens.errors import TokenRefused as TokenRefused
    from ottla.tokens.errors import TokenUnavailable as TokenUnavailable
    from ottla.tokens.token import Token as Token

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"ottla.tokens.errors": ["TokenRefused", "TokenUnavailable"], "ottla.tokens.token": ["Token"]}
)
