"""Requests to the control API of an embedded cluster."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlencode, urlsplit

from ottla.errors import BrokerUnavailable, InputError
from ottla.foreign_json import MOST_BYTES, read_json


def call(
    control: str | None,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    query: dict[str, Any] | None = None,
    timeout_s: float = 60,
) -> Any:
    """Return the JSON of the response. Raises InputError with the API's text for a refusal, BrokerUnavailable if the
    port is closed."""
    if not control:
        raise InputError(
            "--control: found none, wanted the URL that `ottla broker start --control-port 0` prints"
            " (or set OTTLA_BROKER_CONTROL)"
        )
    address = urlsplit(control if "//" in control else f"http://{control}")
    try:
        host, port = address.hostname, address.port
    except ValueError:
        host, port = None, None
    if address.scheme != "http" or host is None or port is None:
        raise InputError(f"--control: found {control!r}, wanted http://127.0.0.1:PORT")
    target = path if not query else f"{path}?{urlencode(query)}"
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, target, body=content, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = read_json(response.read(MOST_BYTES + 1))
    except (OSError, http.client.HTTPException) as error:
        raise BrokerUnavailable(f"no control API at {control}: {error}") from error
    except ValueError as error:
        raise BrokerUnavailable(f"{control} is not a control API: {error}") from error
    finally:
        connection.close()
    if response.status >= 400:
        raise InputError(str(answer.get("error", answer)))
    return answer
