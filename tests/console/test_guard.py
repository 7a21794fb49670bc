"""Who may ask the console what. Pure: no server runs."""

from __future__ import annotations

import pytest

from ottla.console.guard import TOKEN_HEADER, GuardedRequest, Rules, hosts_of, refusal

RULES = Rules(hosts=hosts_of(["127.0.0.1", "localhost", "::1"], 8088), token="the-secret", may_write=True)
COOKIE = {"cookie": f"other=1; ottla_console={RULES.session}"}


def asked(method: str = "GET", path: str = "/api/topics", **headers: str) -> GuardedRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return GuardedRequest(method=method, path=path, headers={"host": "127.0.0.1:8088", **named})


def change(**headers: str) -> GuardedRequest:
    known = {"content_type": "application/json", "x_ottla_token": RULES.write_token, **COOKIE}
    return asked("POST", "/api/group/reset", **{**known, **headers})


def status(found: GuardedRequest, rules: Rules = RULES) -> int:
    refused = refusal(found, rules)
    return 200 if refused is None else refused.status


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "LOCALHOST:8088", "[::1]:8088"])
def test_the_console_is_reached_under_its_own_names(host: str) -> None:
    assert status(asked(host=host, **COOKIE)) == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8088", "127.0.0.1", "127.0.0.1:8089", "127.0.0.1:8088.evil.example"]
)
def test_another_host_is_refused_for_pages_too(host: str) -> None:
    assert status(asked(path="/", host=host)) == 400
    assert status(asked(host=host, **COOKIE)) == 400


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:8088", "http://127.0.0.1:9999", "http://localhost:8088"],
)
def test_another_origin_is_refused(origin: str) -> None:
    assert status(asked(origin=origin, **COOKIE)) == 403


def test_its_own_origin_is_not() -> None:
    assert status(asked(origin="http://127.0.0.1:8088", **COOKIE)) == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_a_request_from_another_site_is_refused(site: str) -> None:
    assert status(asked(sec_fetch_site=site, **COOKIE)) == 403
    assert status(change(sec_fetch_site=site)) == 403


def test_an_address_that_somebody_typed_may_read_and_not_change() -> None:
    assert status(asked(sec_fetch_site="none", **COOKIE)) == 200
    assert status(change(sec_fetch_site="none")) == 403
    assert status(change(sec_fetch_site="same-origin")) == 200


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/topics", "/api/session", "/api/nothing"])
def test_nothing_of_the_api_is_told_without_the_token(path: str) -> None:
    assert status(asked(path=path)) == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": "ottla_console=wrong"},
        {"cookie": "ottla_console="},
        {"cookie": f"another={RULES.session}"},
        {"cookie": "ottla_console=the-secret"},
        {"authorization": "Bearer wrong"},
        {"authorization": "the-secret"},
        {"authorization": "Basic the-secret"},
        {"authorization": f"Bearer {RULES.session}"},
        {"authorization": "Bearer \xff\xfe"},
    ],
)
def test_a_wrong_token_is_none(headers: dict[str, str]) -> None:
    assert status(asked(**headers)) == 401


def test_the_page_itself_is_public_and_is_only_read() -> None:
    assert status(asked(path="/")) == 200
    assert status(asked(path="/static/app.js")) == 200
    assert status(asked("POST", "/")) == 405


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_other_methods_are_not_there(method: str) -> None:
    assert status(asked(method, **COOKIE)) == 405


def test_a_login_takes_the_token_in_a_header_that_no_form_can_send() -> None:
    assert status(asked("POST", "/api/login", x_ottla_token="the-secret")) == 200
    assert status(asked("POST", "/api/login", x_ottla_token="wrong")) == 401
    assert status(asked("POST", "/api/login")) == 401
    assert status(asked("GET", "/api/login", x_ottla_token="the-secret")) == 405
    assert status(asked("POST", "/api/login", x_ottla_token="the-secret", origin="http://evil.example")) == 403


def test_a_change_needs_everything_at_once() -> None:
    assert status(change()) == 200
    assert status(change(x_ottla_token="wrong")) == 403
    assert status(change(x_ottla_token=RULES.session)) == 403
    assert status(change(content_type="text/plain")) == 415
    assert status(change(content_type="application/x-www-form-urlencoded")) == 415
    assert status(change(content_type="application/json; charset=utf-8")) == 200
    assert status(change(cookie="")) == 401
    assert status(change(origin="http://evil.example")) == 403
    assert (
        status(asked("POST", "/api/group/reset", authorization="Bearer the-secret", content_type="application/json"))
        == 200
    )


def test_a_console_that_only_reads_refuses_every_change() -> None:
    reading = Rules(hosts=RULES.hosts, token=RULES.token)
    assert status(change(), reading) == 403
    assert status(asked(**COOKIE), reading) == 200


def test_what_a_page_may_know_does_not_tell_the_token() -> None:
    assert len({RULES.token, RULES.session, RULES.write_token}) == 3
    assert RULES.token not in repr(RULES)
    assert TOKEN_HEADER == "x-ottla-token"
