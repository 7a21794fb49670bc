"""The options of the broker as a process, as a table: `python -m broker_embedded` and `ottla broker start` have them.

Values are checked where they are used, so both programs refuse the same with the same words.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ProcessOption(NamedTuple):
    """One option. `alone` is the value of an option that may stand without one."""

    name: str
    help: str
    metavar: str | None = None
    kind: type[str] | type[int] | type[float] = str
    default: int | str | None = None
    choices: tuple[str, ...] | None = None
    is_repeated: bool = False
    alone: float | None = None


GENERAL: Final = (
    ProcessOption("--brokers", "Number of brokers in this process.", "N", int, 1),
    ProcessOption("--port", "Port of the first broker; the others take the next ports. 0: free ones.", "BASE", int, 0),
    ProcessOption("--ports", "The port of each broker, in place of --port; 0 is any free one.", "PORT,..."),
    ProcessOption("--first-broker-id", "Id of the first broker; the others follow.", "ID", int, 1),
    ProcessOption(
        "--advertised-host",
        "The host name that brokers give to clients, as in localhost. Where they listen stays the same.",
        "HOST",
    ),
    ProcessOption(
        "--listen",
        "The IPv4 address to listen on; 0.0.0.0 is all, and needs --advertised-host.",
        "ADDRESS",
        str,
        "127.0.0.1",
    ),
    ProcessOption("--data-dir", "Where logs are kept. A temporary directory, removed at the end, if left out.", "DIR"),
    ProcessOption("--racks", "The rack of each broker, in order, as in a,b,c.", "RACK,..."),
    ProcessOption("--log-dirs", "Log directories of each broker.", "N", int, 1),
    ProcessOption(
        "--log-dir-bytes",
        "How many bytes each log directory of a broker holds, in order, or one number for all.",
        "BYTES,...",
    ),
    ProcessOption(
        "--topics",
        "Topics to create before the cluster is ready, as in orders:3,returns; may be repeated. Existing ones stay.",
        "NAME[:PARTITIONS[:REPLICAS]]",
        is_repeated=True,
    ),
    ProcessOption("--set", "A broker setting; may be repeated.", "KEY=VALUE", is_repeated=True),
    ProcessOption("--control-port", "Serve the control API on this port of loopback, 0 for any free one.", "PORT", int),
    ProcessOption(
        "--virtual-clock",
        "A clock of the cluster's own, which the control API can advance. Speed 1 if left out; 0 stops it.",
        "SPEED",
        float,
        alone=1.0,
    ),
    ProcessOption("--log-level", "What goes to stderr.", default="info", choices=("debug", "info", "warning", "error")),
)
SECURITY: Final = (
    ProcessOption(
        "--security-protocol",
        "The protocol for clients. Default: PLAINTEXT, without a password.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ProcessOption("--user", "A user for SASL; may be repeated.", "NAME=PASSWORD", is_repeated=True),
    ProcessOption(
        "--users",
        "A file with NAME=PASSWORD in each line: users for SASL. Arguments are seen by other users of the machine.",
        "FILE",
    ),
    ProcessOption(
        "--sasl-mechanism",
        "May be repeated. Those with passwords if left out.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        is_repeated=True,
    ),
    ProcessOption(
        "--oauth",
        "Which tokens OAUTHBEARER accepts: jwks, jwks_ca, issuer, audience, scope, clock_skew_s, principal_claim,"
        " scope_claim. May be repeated. Unsigned tokens if left out.",
        "NAME=VALUE",
        is_repeated=True,
    ),
    ProcessOption(
        "--max-reauth-ms",
        "How long a login by this mechanism is valid; may be repeated.",
        "MECHANISM=MS",
        is_repeated=True,
    ),
    ProcessOption(
        "--certificates",
        "For TLS: a folder of test certificates. Missing ones are created: ca.pem, server.pem, client.pem.",
        "DIR",
    ),
    ProcessOption("--certificate", "For TLS: the brokers' certificate chain (PEM).", "FILE"),
    ProcessOption("--key", "Its private key (PEM), if it is not in that file.", "FILE"),
    ProcessOption("--client-ca", "CA that signs client certificates (PEM).", "FILE"),
    ProcessOption(
        "--client-auth",
        "Whether clients must show a certificate. Default: none.",
        choices=("none", "requested", "required"),
    ),
)
