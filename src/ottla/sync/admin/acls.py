"""ACLs of a cluster: list, create and delete them. Who may do what is for the cluster to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from ottla.config import Principal, Settings, principal_of
from ottla.errors import BrokerUnavailable, ConfigError, InputError
from ottla.sync.client.guarded import AdminClient
from ottla.topics import text_problem
from ottla.wire_client.net.reachability import addresses_of, first_reachable

T = TypeVar("T")

CLUSTER = "cluster"
CLUSTER_NAME = "kafka-cluster"
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    CLUSTER: ResourceType.BROKER,  # librdkafka's name for it
    "any": ResourceType.ANY,
}
_NAMES = {kind: name for name, kind in _RESOURCES.items()}
OPERATIONS = tuple(
    each.name.lower().replace("_", "-") for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY)
)


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Acl:
    """One ACL, or what to look for: then `any` stands for every kind, and None for every name."""

    resource: str = "any"
    name: str | None = None
    pattern: str = "any"
    principal: str | None = None
    host: str | None = None
    operation: str = "any"
    permission: str = "any"

    def __str__(self) -> str:
        place = "" if self.resource == CLUSTER else f" {self.name}"
        prefixed = "*" if self.pattern == "prefixed" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} to {self.operation} {self.resource}{place}{prefixed}"


class Acls:
    """The ACLs of the cluster that `settings` name."""

    def __init__(self, settings: Settings, *, timeout_s: float = 10.0) -> None:
        self._settings = settings
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._timeout_s = timeout_s
        problem = first_reachable(addresses_of(self._servers), settings, timeout_s=timeout_s)
        if problem is not None:
            raise BrokerUnavailable(f"no Kafka broker answered at {problem}")
        self._admin = AdminClient({**settings.to_confluent(), "log_level": 0})

    def find(self, wanted: Acl) -> list[Acl]:
        """Those that match, in order."""
        (found,) = self._results([self._admin.describe_acls(_filter(wanted), request_timeout=self._timeout_s)], "list")
        if not found:
            self._check_that_there_are_none()
        return sorted(map(_acl, found))

    def create(self, acls: Sequence[Acl]) -> None:
        """What is there already stays as it is."""
        if acls:
            futures = self._admin.create_acls([_binding(acl) for acl in acls], request_timeout=self._timeout_s)
            self._results(futures.values(), "create")

    def delete(self, wanted: Sequence[Acl]) -> list[Acl]:
        """Delete what matches any of them; returns what was there."""
        if not wanted:
            return []
        futures = self._admin.delete_acls([_filter(each) for each in wanted], request_timeout=self._timeout_s)
        return sorted({_acl(each) for found in self._results(futures.values(), "delete") for each in found})

    def _check_that_there_are_none(self) -> None:
        """librdkafka 2 takes a refusal to list ACLs for an empty list: what the cluster allows is asked for itself."""
        asked = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout_s)
        (cluster,) = self._results([asked], "list")
        if AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
            raise self._not_allowed("list", "Cluster authorization failed")
        broker = ConfigResource(ConfigResource.Type.BROKER, str(cluster.nodes[0].id))
        (described,) = self._admin.describe_configs([broker], request_timeout=self._timeout_s).values()
        try:
            settings = described.result(self._timeout_s)
        except KafkaException:
            return  # nothing against it: only whoever may see the settings is told
        if not getattr(settings.get("authorizer.class.name"), "value", "unknown"):
            raise self._no_authorizer()

    def _results(self, futures: Iterable[Future[T]], verb: str) -> list[T]:
        try:
            return [future.result(self._timeout_s + 5) for future in futures]
        except KafkaException as error:
            raise self._explained(error, verb) from error
        except TimeoutError:
            raise BrokerUnavailable(f"{self._servers} did not answer within {self._timeout_s:g} s") from None

    def _explained(self, error: KafkaException, verb: str) -> Exception:
        problem = error.args[0]
        if problem.name() == "SECURITY_DISABLED":
            return self._no_authorizer()
        if problem.name() == "CLUSTER_AUTHORIZATION_FAILED":
            return self._not_allowed(verb, problem.str())
        if problem.name() in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
            return BrokerUnavailable(f"no Kafka broker answers at {self._servers}: {problem.str()}")
        return ConfigError(f"the cluster at {self._servers} refused to {verb} ACLs: {problem.name()}: {problem.str()}")

    def _no_authorizer(self) -> ConfigError:
        return ConfigError(
            f"the brokers at {self._servers} have no authorizer, so there are no ACLs: authorizer.class.name is not set"
        )

    def _not_allowed(self, verb: str, text: str) -> ConfigError:
        needed = "DESCRIBE" if verb == "list" else "ALTER"
        refused = Principal(principal=principal_of(self._settings)).refused("", text, servers=self._servers)
        return ConfigError(f"{refused}. {needed} on the cluster is needed to {verb} ACLs")


def _number(enum: Any, name: str) -> Any:
    return enum[name.upper().replace("-", "_")]


def _arguments(acl: Acl) -> tuple[Any, ...]:
    for what, text in (("name", acl.name), ("principal", acl.principal), ("host", acl.host)):
        problem = text_problem(text) if isinstance(text, str) else None
        if problem is not None:
            raise InputError(f"ACL: {what}: {problem}")
    return (
        _RESOURCES[acl.resource],
        acl.name,
        _number(ResourcePatternType, acl.pattern),
        acl.principal,
        acl.host,
        _number(AclOperation, acl.operation),
        _number(AclPermissionType, acl.permission),
    )


def _binding(acl: Acl) -> Any:
    return AclBinding(*_arguments(acl))


def _filter(acl: Acl) -> Any:
    return AclBindingFilter(*_arguments(acl))


def _acl(binding: Any) -> Acl:
    return Acl(
        resource=_NAMES.get(binding.restype, binding.restype.name.lower()),
        name=binding.name,
        pattern=binding.resource_pattern_type.name.lower(),
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name.lower().replace("_", "-"),
        permission=binding.permission_type.name.lower(),
    )
