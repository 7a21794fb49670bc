"""OAUTHBEARER by the Java client's names, as Spark's options and files of Kafka's tools have it, and back."""

from __future__ import annotations

import pickle

import pytest

from ottla.config.java_names import from_java, to_java
from ottla.errors import ConfigError
from ottla.spark.options import source_options
from ottla.tokens.settings import Origin
from ottla.tokens.shared import forget_sources

ENDPOINT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
}
OURS = {
    **ENDPOINT,
    "sasl.oauthbearer.client.id": "orders",
    "sasl.oauthbearer.client.secret": 'a"b\\c',
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
}
JAVA = {
    **ENDPOINT,
    "sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    ),
    "sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="orders" clientSecret="a\\"b\\\\c" scope="kafka" extension_logicalCluster="lkc-1"'
        ' extension_identityPoolId="pool-2";'
    ),
}


def test_client_credentials_are_translated_both_ways() -> None:
    assert to_java(OURS) == JAVA
    assert from_java(JAVA) == OURS


def test_certificates_of_the_endpoint_are_an_option_of_the_login_module() -> None:
    ours = {**OURS, "https.ca.location": "/etc/ca.pem"}
    java = to_java(ours)
    assert 'ssl.truststore.type="PEM" ssl.truststore.location="/etc/ca.pem"' in java["sasl.jaas.config"]
    assert "https.ca.location" not in java
    assert from_java(java) == ours
    jaas = java["sasl.jaas.config"].replace('ssl.truststore.type="PEM"', "")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.type=PEM"):
        from_java({**java, "sasl.jaas.config": jaas})


def test_the_older_package_of_the_callback_handler_is_understood() -> None:
    older = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    assert from_java({**JAVA, "sasl.login.callback.handler.class": older}) == OURS


@pytest.mark.parametrize(
    "java",
    [
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        },
    ],
)
def test_amazons_modules_are_the_method_of_msk(java: dict[str, str]) -> None:
    assert from_java(java) == {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "aws-msk-iam"}


def test_unsecured_tokens_are_translated() -> None:
    ours = {
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice",
    }
    java = to_java(ours)
    assert 'unsecuredLoginStringClaim_sub="alice"' in java["sasl.jaas.config"]
    assert from_java(java) == ours


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**OURS, "sasl.oauthbearer.method": "aws-msk-iam"}, "use engine='python'"),
        ({**OURS, "sasl.oauthbearer.assertion.file": "x"}, "sasl.oauthbearer.assertion.file"),
        ({**OURS, "https.ca.pem": "x"}, "https.ca.pem"),
    ],
)
def test_what_the_java_client_cannot_do_is_said(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_java(settings)


@pytest.mark.parametrize(
    ("java", "message"),
    [
        ({**JAVA, "sasl.login.callback.handler.class": "com.example.Own"}, "kafka.sasl.login.callback.handler.class"),
        (
            {**JAVA, "sasl.jaas.config": JAVA["sasl.jaas.config"].replace("scope=", "scopes=")},
            "kafka.sasl.jaas.config",
        ),
    ],
)
def test_what_this_client_cannot_do_is_said_without_a_secret(java: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        from_java(java, prefix="kafka.")
    assert 'a"b' not in str(refused.value)


def test_options_of_spark_have_tokens_and_go_to_its_executors() -> None:
    given = {f"kafka.{name}": value for name, value in {**JAVA, "bootstrap.servers": "a:1"}.items()}
    wire = source_options({**given, "subscribe": "orders"}, is_streaming=False).wire
    assert wire.tokens is not None
    assert wire.tokens.settings.origin is Origin.OIDC
    forget_sources()
    there = pickle.loads(pickle.dumps(wire))
    assert there.tokens is not wire.tokens
    assert there.tokens.settings == wire.tokens.settings
    forget_sources()
