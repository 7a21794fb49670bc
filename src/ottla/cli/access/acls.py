"""`ottla acls`: who may do what on a cluster, with the options of Kafka's own kafka-acls.

A principal is KIND:NAME, as in User:billing; User:* is everybody. Where nothing is named, `list` and `delete` mean
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from ottla.admin.operations.acl_changes import OPERATIONS, Acl, AclsRefused
from ottla.browse.acl_options import Options, what_to_create, what_to_find
from ottla.cli.shared.cluster_options import check_reachable, open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.config import Principal, Settings, principal_of
from ottla.errors import ConfigError
from ottla_wire.protocol import ErrorCode

F = TypeVar("F", bound=Callable[..., Any])

_FIELDS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")

_RESOURCES = (
    click.option(
        "--topic",
        "topics",
        multiple=True,
        shell_complete=complete_topics,
        help="A topic. Repeatable, as are the next options.",
    ),
    click.option("--group", "groups", multiple=True, shell_complete=complete_groups, help="A consumer group."),
    click.option("--transactional-id", "transactional_ids", multiple=True, help="A transactional id."),
    click.option("--kafka-cluster", is_flag=True, help="The cluster itself."),
)
_WHO = (
    click.option(
        "--allow-principal",
        "allowed",
        multiple=True,
        metavar="KIND:NAME",
        help="Principal to allow, as in User:billing.",
    ),
    click.option(
        "--deny-principal",
        "denied",
        multiple=True,
        metavar="KIND:NAME",
        help="Principal to deny; overrides every allow.",
    ),
    click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="IP",
        help="Only from here: an address, or a network as in 10.0.0.0/8.  [default: *]",
    ),
    click.option(
        "--deny-host",
        "denied_hosts",
        multiple=True,
        metavar="IP",
        help="Only from here: an address, or a network as in 10.0.0.0/8.  [default: *]",
    ),
    click.option(
        "--operation",
        "operations",
        type=click.Choice(OPERATIONS, case_sensitive=False),
        multiple=True,
        help="The operation; repeatable.  [default: all]",
    ),
)
_ROLES = (
    click.option(
        "--producer", is_flag=True, help="The operations that a producer needs on its topics and transactional ids."
    ),
    click.option("--consumer", is_flag=True, help="The operations that a consumer needs on its topics and group."),
    click.option("--idempotent", is_flag=True, help="With --producer: for brokers before 2.8."),
)


def _pattern(*choices: str, default: str) -> Callable[[F], F]:
    return click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help="Whether names are literal, or prefixes of names.",
    )


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, create and delete ACLs.

    \b
    Examples:
      ottla acls list --topic orders
      ottla acls create --allow-principal User:billing --consumer --topic orders --group billing --dry-run
      ottla acls delete --topic orders --dry-run
    """


@acls.command("list")
@reaches_a_cluster
@prints
@takes(*_RESOURCES)
@click.option("--principal", "principals", multiple=True, metavar="KIND:NAME", help="Only ACLs of this principal.")
@_pattern("any", "match", "literal", "prefixed", default="any")
def list_acls(kafka: Settings, out: Output, principals: tuple[str, ...], **options: Any) -> None:
    """List ACLs: all, or those of the named resources. `match` lists all that apply to a name.

    \b
    Examples:
      ottla acls list
      ottla acls list --topic orders --resource-pattern-type match
      ottla acls list --principal User:billing --format json
    """
    wanted = what_to_find(Options(**options, allowed=principals), by_name_only=True)
    with open_admin(kafka) as admin, _explained(kafka, "list"):
        found = sorted({acl for each in wanted for acl in admin.find_acls(each)})
    _show(out, "acls.list/1", found, empty="no ACLs")


@acls.command()
@reaches_a_cluster
@prints
@changes
@takes(*_RESOURCES, *_WHO, *_ROLES)
@_pattern("literal", "prefixed", default="literal")
def create(kafka: Settings, out: Output, consent: Consent, **options: Any) -> None:
    """Allow or deny operations to a principal. Without --operation: all operations.

    \b
    Examples:
      ottla acls create --allow-principal User:billing --consumer --topic orders --group billing --yes
      ottla acls create --allow-principal User:web --producer --topic orders --dry-run
      ottla acls create --deny-principal User:guest --operation write --topic orders --yes
    """
    wanted = what_to_create(Options(**options))
    if not consent.is_dry_run:
        check_reachable(kafka)
    _show(out, "acls.create/1", wanted, empty="nothing to create")
    if not consent.agree(f"Create {_count(wanted)}?"):
        return
    with changing(), open_admin(kafka) as admin, _explained(kafka, "create"):
        admin.create_acls(*wanted)
    say(f"{_count(wanted)} created")


@acls.command()
@reaches_a_cluster
@prints
@changes
@takes(*_RESOURCES, *_WHO, *_ROLES)
@_pattern("any", "match", "literal", "prefixed", default="literal")
def delete(kafka: Settings, out: Output, consent: Consent, **options: Any) -> None:
    """Delete the ACLs that match the named resources and principals.

    \b
    Examples:
      ottla acls delete --topic orders --dry-run
      ottla acls delete --allow-principal User:billing --yes
    """
    chosen = Options(**options)
    wanted = what_to_find(chosen, by_name_only=not chosen.has_role)
    with open_admin(kafka) as admin:
        with _explained(kafka, "list"):
            found = sorted({acl for each in wanted for acl in admin.find_acls(each)})
        _show(out, "acls.delete/1", found, empty="no ACLs match")
        if not found or not consent.agree(f"Delete {_count(found)}?"):
            return
        with changing(), _explained(kafka, "delete"):
            deleted = admin.delete_acls(*found)
    say(f"{_count(deleted)} deleted")


@contextmanager
def _explained(kafka: Settings, verb: str) -> Iterator[None]:
    """Turn a refusal into a `ConfigError` that names the refused principal and the required permission."""
    try:
        yield
    except AclsRefused as error:
        servers = kafka["bootstrap.servers"]
        if error.code is ErrorCode.SECURITY_DISABLED:
            problem = (
                f"the brokers at {servers} have no authorizer, so there are no ACLs: authorizer.class.name is not set"
            )
        elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            needed = "DESCRIBE" if verb == "list" else "ALTER"
            refused = Principal(principal=principal_of(kafka)).refused("", str(error), servers=servers)
            problem = f"{refused}. {needed} on the cluster is needed to {verb} ACLs"
        else:
            problem = f"the cluster at {servers} refused to {verb} {error}"
        raise ConfigError(problem) from error


def _show(out: Output, schema: str, chosen: Sequence[Acl], *, empty: str) -> None:
    items = [{name: getattr(acl, name) for name in _FIELDS} for acl in chosen]
    out.items(schema, _FIELDS, items, empty=empty)


def _count(chosen: Sequence[Acl]) -> str:
    return "1 ACL" if len(chosen) == 1 else f"{len(chosen):,} ACLs"
