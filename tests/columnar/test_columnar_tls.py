"""TLS to the broker: trusted, not trusted, for another host, and spoken to without."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.columnar import BrokerRefused, read, write
from ottla.errors import BrokerUnavailable, ConfigError

if shutil.which("openssl") is None:
    pytest.skip("needs the command openssl to make a certificate", allow_module_level=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) for localhost, by name only."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "broker.pem", folder / "broker.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:localhost", "-out", paths[0], "-keyout", paths[1]],
        check=True,
        capture_output=True,
    )
    return paths


@pytest.fixture
def secure(broker, settings, certificate):
    """Settings that trust the broker's certificate and call it by its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    broker.tls = context
    broker.add_topic("orders")
    return settings | {
        "bootstrap.servers": f"localhost:{broker.port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificate[0]),
        # The scripted broker tells clients its address by number, which the certificate does not have.
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_records_travel_over_tls(secure):
    write("orders", pa.table({"value": ["a", "b"]}), settings=secure)
    assert read("orders", settings=secure).read_all().column("value").to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize("trust", ["as text", "not asked for"])
def test_an_authority_may_be_given_as_text_and_a_certificate_may_go_unverified(secure, trust):
    authority = Path(secure.pop("ssl.ca.location"))
    secure |= {
        "as text": {"ssl.ca.pem": authority.read_text()},
        "not asked for": {"enable.ssl.certificate.verification": "false"},
    }[trust]
    write("orders", pa.table({"value": ["a"]}), settings=secure)
    assert read("orders", settings=secure).read_all().num_rows == 1


def test_a_certificate_that_cannot_be_read_is_a_wrong_setting_and_not_asked_for_again(secure, tmp_path):
    secure["default.api.timeout.ms"] = 3_600_000
    (tmp_path / "empty.pem").touch()
    for name, file in (("ssl.ca.location", "no-such-file.pem"), ("ssl.certificate.location", "empty.pem")):
        with pytest.raises(ConfigError, match=rf"{name}=.*{file}.*wanted readable certificates and key"):
            read("orders", settings=secure | {name: str(tmp_path / file)})


def test_a_certificate_nobody_vouches_for_is_refused(secure):
    del secure["ssl.ca.location"]
    secure["default.api.timeout.ms"] = 3_600_000  # asking again would not help, and is not done
    with pytest.raises(BrokerRefused, match=r"not trusted: self-signed certificate \(ssl\.ca\.location"):
        read("orders", settings=secure)


def test_a_certificate_for_another_host_is_refused(secure, broker):
    del secure["ssl.endpoint.identification.algorithm"]
    secure["bootstrap.servers"] = broker.bootstrap_servers
    with pytest.raises(BrokerRefused, match=r"not trusted: IP address mismatch.*127\.0\.0\.1"):
        read("orders", settings=secure)


def test_plain_text_to_a_tls_port_asks_about_the_protocol(secure):
    plain = {name: value for name, value in secure.items() if not name.startswith(("ssl.", "security."))}
    with pytest.raises(BrokerUnavailable, match=r"security\.protocol"):
        read("orders", settings=plain)
