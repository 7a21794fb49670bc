"""APP02: the permissions of a service's user, compared with what the service declares.

As Kafka's StandardAuthorizer: a user in `super.users` may do everything, and a DENY overrides every ALLOW of its
operation. The host of an ACL is not compared: where the service will run is not known. So an ALLOW of any host counts,
and a DENY of one host does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import AppDeclaration, Evidence, Severity
from ottla.admin.facts.cluster_facts import AclInfo, Part

_RESET: Final = "share.auto.offset.reset"
_ALLOWED_BY: Final = {"read": ("read", "all"), "write": ("write", "all"), "alter-configs": ("alter-configs", "all")}
"""Operation → the operations of an ALLOW that permit it."""


@Check(
    "APP02",
    Severity.ERROR,
    "A service may not do what it declares",
    reads={Part.BROKER_SETTINGS, Part.ACLS, Part.GROUPS, Part.GROUP_SETTINGS},
    needs_app=True,
    why="A service notices that a permission is missing when it needs it: on a dead letter topic when a record fails."
    " The user is sasl.username of the service's settings; without one (a client certificate, a token) nothing is"
    " compared.",
    fix="ottla acls create --allow-principal User:NAME --operation read --group GROUP",
)
def may_do_it(seen: Evidence) -> Iterator[CheckResult]:
    app = seen.app
    if app is None or not _is_authorized(seen):
        return
    reader, writer = _Rights(seen, app.consumer), _Rights(seen, app.producer)
    for group, topics in app.groups.items():
        kind = "share group" if group in app.queues else "group"
        yield from reader.needs(app, "read", "group", group, f"it is a member of {kind} {group}")
        for topic in topics:
            yield from reader.needs(app, "read", "topic", topic, f"group {group} reads {topic}")
        if group in app.queues and app.queues[group].start == "earliest" and not _starts_as_set(seen, group):
            yield from reader.needs(
                app,
                "alter-configs",
                "group",
                group,
                f"its queue sets {_RESET}=earliest of its new share group, which else starts at the end",
                severity=Severity.WARNING,
            )
    written = {(used.topic, used.use) for used in app.topics if used.use in ("writes", "dead letters", "retries")}
    for topic, use in sorted(written):
        yield from writer.needs(
            app, "write", "topic", topic, f"it writes {topic}" if use == "writes" else f"it writes {use} to {topic}"
        )


class _Rights:
    """The permissions of the user in a client's settings."""

    def __init__(self, seen: Evidence, settings: Mapping[str, object]) -> None:
        name = settings.get("sasl.username")
        self._principal = f"User:{name}" if isinstance(name, str) and name else None
        self._acls: Sequence[AclInfo] = seen.facts.acls or ()
        self._is_super = any(
            self._principal in (each.value or "").split(";") for each in seen.broker_setting("super.users").values()
        )
        found = seen.broker_setting("allow.everyone.if.no.acl.found").values()
        self._allows_if_none = bool(found) and all((each.value or "").lower() == "true" for each in found)

    def needs(
        self,
        app: AppDeclaration,
        operation: str,
        resource: str,
        name: str,
        why: str,
        *,
        severity: Severity | None = None,
    ) -> Iterator[CheckResult]:
        """Yield a result if the user may not do this."""
        if self._principal is None or self._is_super or self._allows(operation, resource, name):
            return
        yield CheckResult(
            subject=f"{resource} {name}",
            severity=severity,
            message=f"{app.name}: {why}, and no ACL allows {self._principal} to {operation} {resource} {name}",
            fix=f"ottla acls create --allow-principal {self._principal} --operation {operation} --{resource} {name}",
        )

    def _allows(self, operation: str, resource: str, name: str) -> bool:
        of_it = [acl for acl in self._acls if acl.resource == resource and _concerns(acl, name)]
        if not of_it:
            return self._allows_if_none
        own = [acl for acl in of_it if acl.principal in (self._principal, "User:*")]
        is_denied = any(
            acl.permission == "deny" and acl.host == "*" and acl.operation in (operation, "all") for acl in own
        )
        return not is_denied and any(
            acl.permission == "allow" and acl.operation in _ALLOWED_BY[operation] for acl in own
        )


def _concerns(acl: AclInfo, name: str) -> bool:
    if acl.pattern == "prefixed":
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def _is_authorized(seen: Evidence) -> bool:
    """Return whether a broker is known to have an authorizer, and the ACLs were read."""
    authorizers = seen.broker_setting("authorizer.class.name").values()
    return seen.facts.acls is not None and any(each.value for each in authorizers)


def _starts_as_set(seen: Evidence, group: str) -> bool:
    """Return whether it was set where the share group starts: then the service has nothing to set."""
    settings = next((each.settings for each in seen.facts.groups if each.group_id == group), None)
    found = None if settings is None else settings.get(_RESET)
    return found is not None and found.source == "DYNAMIC_GROUP_CONFIG"
