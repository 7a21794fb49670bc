"""Tokens for Amazon MSK with IAM: a signed URL, good for 15 minutes, by the signer that AWS keeps (ottla[msk-iam])."""

from __future__ import annotations

import os

from ottla.errors import ConfigError
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.settings import TokenSettings
from ottla.tokens.token import Token

_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def fetch(settings: TokenSettings) -> Token:
    """Sign a token with the credentials that AWS's own chain finds: environment, files, roles."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise ConfigError(
            "sasl.oauthbearer.method=aws-msk-iam needs AWS's signer: pip install 'ottla[msk-iam]'"
        ) from error
    region = settings.aws_region or next(filter(None, map(os.environ.get, _REGION_VARIABLES)), "")
    if not region:
        raise ConfigError(
            "sasl.oauthbearer.aws.region: found nothing, wanted a region, as in eu-central-1 (or AWS_REGION in the "
            "environment)"
        )
    try:
        value, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:  # whatever botocore raises: no credentials, no network to the role's endpoint
        raise TokenUnavailable(f"{settings.name}: {type(error).__name__}: no credentials for region {region}") from None
    return Token(value=value, expires_at=expires_ms / 1000, extensions=dict(settings.extensions))
