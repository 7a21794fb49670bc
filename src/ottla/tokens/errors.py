"""Errors of tokens, sorted by what to do. No message holds a token or a secret."""

from __future__ import annotations

from ottla.errors import AuthenticationError, BrokerUnavailable


class TokenUnavailable(BrokerUnavailable, has_page=False):
    """Check the token endpoint in the message, then try again: there is no token that is still good.

    A kind of `BrokerUnavailable`, because the same follows: no broker can be reached now, and may be later.
    """


class TokenRefused(AuthenticationError, has_page=False):
    """Fix the client id, secret, scope or grant that the message names: the token endpoint refuses them."""
