"""What a share group's settings are to be before its first record is leased: checked, and set where it is new.

A new share group starts at the end of its topics (`share.auto.offset.reset`), so that what was sent before its first
start is never delivered; and a broker gives a record up after `share.delivery.count.limit` deliveries, without a dead
letter of the application's. Both are dynamic settings of the group (resource type GROUP, KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.errors import BrokerTooOld, ConfigError
from ottla.telemetry import log_event
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.cluster.coordinator_calls import MOVED, Coordinates, with_coordinator
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

_GROUP_RESOURCE: Final = 32
_SET: Final = 0
_GROUPS_OWN: Final = 8
"""The source of a setting that was chosen for this group (`DYNAMIC_GROUP_CONFIG`)."""

RESET: Final = "share.auto.offset.reset"
LIMIT: Final = "share.delivery.count.limit"
DEFAULT_LIMIT: Final = 5


@fact
class GroupSettings:
    """The settings of a share group, and which of them were chosen for it."""

    values: Mapping[str, str]
    chosen: frozenset[str]
    is_new: bool
    """Whether no member has joined the group yet."""

    @property
    def delivery_count_limit(self) -> int:
        """Return how often a record is delivered before the broker gives it up."""
        text = self.values.get(LIMIT, "")
        return int(text) if text.isascii() and text.isdigit() else DEFAULT_LIMIT


def prepare_group(
    settings: WireSettings,
    *,
    group: str,
    topics: Sequence[str],
    start: str,
    max_attempts: int | None,
    topics_timeout_s: float,
    should_give_up: Callable[[], bool] = lambda: False,
) -> GroupSettings:
    """Check the group's settings, and set those of a new group. Blocks.

    Raises `BrokerTooOld` where share groups are not served, `UnknownTopic` for a topic that is missing, and
    `ConfigError` where the group is of another type, which keeps its settings, or where `max_attempts` (None: not
    checked) is not below the broker's limit and cannot be made so.
    """
    with Cluster(settings) as cluster:
        _check_served(cluster)
        for topic in topics:
            cluster.topic(topic, missing_for_s=0.0 if should_give_up() else topics_timeout_s)
        found = group_settings(cluster, group)
        wanted: dict[str, str] = {}
        if found.is_new and RESET not in found.chosen and found.values.get(RESET, "latest") != start:
            wanted[RESET] = start
        if max_attempts is not None and max_attempts >= found.delivery_count_limit and LIMIT not in found.chosen:
            wanted[LIMIT] = str(max_attempts + 1)
        refusals = {name: _set(cluster, group, name, value) for name, value in wanted.items()}
        servers = ",".join(f"{host}:{port}" for host, port in settings.bootstrap_servers)
        for name, value in wanted.items():
            refusal = refusals[name]
            if refusal is None:
                log_event("queue_group_set", "info", {"group": group, "setting": name, "value": value})
            elif name == RESET:
                fields = {"group": group, "setting": name, "value": value, "error": refusal}
                log_event("queue_group_not_set", "warning", {**fields, "hint": command(servers, group, name, value)})
        limit = found.delivery_count_limit
        is_raised = LIMIT in wanted and refusals[LIMIT] is None
        if max_attempts is not None and max_attempts >= limit and not is_raised:
            raise ConfigError(_limit_problem(servers, group, max_attempts, limit, refusals.get(LIMIT)))
        return found


def group_settings(cluster: Cluster, group: str) -> GroupSettings:
    """Return the settings of a group. What may not be read is left out."""
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
    answer = cluster.until(
        lambda: cluster.any_broker().call(ApiKey.DESCRIBE_CONFIGS, {"resources": [resource]}),
        what=f"the settings of group {group}",
    )
    values: dict[str, str] = {}
    chosen: set[str] = set()
    for result in answer.results:
        if result.error_code != ErrorCode.NONE:
            continue
        for entry in result.configs:
            if entry.value is not None:
                values[entry.name] = entry.value
            if entry.config_source == _GROUPS_OWN:
                chosen.add(entry.name)
    return GroupSettings(values=values, chosen=frozenset(chosen), is_new=_is_new(cluster, group))


def command(servers: str, group: str, name: str, value: str) -> str:
    """Return the command of Kafka's own tools that sets a group's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type groups --entity-name {group} "
        f"--add-config {name}={value}"
    )


def _check_served(cluster: Cluster) -> None:
    connection = cluster.any_broker()
    for api in (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        connection.version(api)  # raises BrokerTooOld with what was found
    if connection.version(ApiKey.SHARE_FETCH) < 2:
        raise BrokerTooOld(
            f"{connection.address} serves ShareFetch up to version 1, without a strict limit of records and without "
            "renewal of locks (KIP-1206, KIP-1222); wanted version 2: Kafka 4.2 or newer"
        )


def _is_new(cluster: Cluster, group: str) -> bool:
    """Return whether no group has this name. Raises `ConfigError` where a group of another type has it."""
    found: list[ErrorCode] = []

    def attempt(coordinator: Connection) -> str | None:
        body = {"group_ids": [group], "include_authorized_operations": False}
        answer = coordinator.call(ApiKey.SHARE_GROUP_DESCRIBE, body)
        code = ErrorCode.of(answer.groups[0].error_code) if answer.groups else ErrorCode.GROUP_ID_NOT_FOUND
        if code is ErrorCode.GROUP_ID_NOT_FOUND:  # so it answers for a group of another type, too
            listed = coordinator.call(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
            if any(each.group_id == group and each.group_type.lower() != "share" for each in listed.groups):
                raise other_type(group)
            if (listing := ErrorCode.of(listed.error_code)) in MOVED:
                return listing.name
        elif code in MOVED:
            return code.name
        found.append(code)
        return None

    with_coordinator(cluster, Coordinates.GROUP, group, attempt)
    return found[0] is ErrorCode.GROUP_ID_NOT_FOUND


def other_type(group: str) -> ConfigError:
    """Return the error for a group that is not a share group."""
    return ConfigError(
        f"group {group!r} is a consumer group, and a queue needs a share group of another name; wanted "
        f"group={group + '.queue'!r}"
    )


def _set(cluster: Cluster, group: str, name: str, value: str) -> str | None:
    """Set one setting. Returns why it was refused."""
    change = {"name": name, "config_operation": _SET, "value": value}
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configs": [change]}

    def ask() -> Any:
        body = {"resources": [resource], "validate_only": False}
        return cluster.any_broker().call(ApiKey.INCREMENTAL_ALTER_CONFIGS, body)

    answer = cluster.until(ask, what=f"{name} of group {group}")
    for result in answer.responses:
        code = ErrorCode.of(result.error_code)
        if code is not ErrorCode.NONE:
            return f"{code.name}: {result.error_message}" if result.error_message else code.name
    return None


def _limit_problem(servers: str, group: str, max_attempts: int, limit: int, refusal: str | None) -> str:
    tried = "" if refusal is None else f" (it could not be raised: {refusal})"
    return (
        f"group {group!r}: found max_attempts={max_attempts}, wanted less than {LIMIT}={limit}{tried}: the broker "
        "gives a record up after so many deliveries, without a dead letter. Lower max_attempts, or raise the limit: "
        f"{command(servers, group, LIMIT, str(max_attempts + 1))}"
    )
