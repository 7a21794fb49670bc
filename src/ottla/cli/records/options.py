"""`--as`, `--key-as`, `--registry`, `--schema` and `--message`: how the bytes of keys and values read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import takes
from ottla.cli.shared.registry_options import given_registry

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS = ("auto", "json", "avro", "protobuf", "text", "hex")


def schema_options(command: F) -> F:
    """Add the options to a reading command. The command is called with `decoders` of key and value."""

    @functools.wraps(command)
    def with_decoders(
        *args: Any,
        value_as: str,
        key_as: str,
        registry: str | None,
        schema: Path | None,
        message: str | None,
        **options: Any,
    ) -> Any:
        from ottla.browse.decoding import SchemaSource, decoder_of

        access = given_registry(registry)
        source = SchemaSource(registry=access, file=schema, message=message)
        key = decoder_of(key_as, SchemaSource(registry=access), option="--key-as")
        return command(*args, decoders=(key, decoder_of(value_as, source)), **options)

    return _with_options(with_decoders, "auto: what the registry says, else as they are.")  # type: ignore[no-any-return]


def encoding_options(command: F) -> F:
    """Add the options to a writing command. The command is called with `encoders_for`, which returns a topic's encoders
    of key and value."""

    @functools.wraps(command)
    def with_encoders(
        *args: Any,
        value_as: str,
        key_as: str,
        registry: str | None,
        schema: Path | None,
        message: str | None,
        **options: Any,
    ) -> Any:
        def encoders_for(topic: str) -> Any:
            from ottla.browse.decoding import SchemaSource
            from ottla.browse.encoding import encoders_of

            access = given_registry(registry)
            source = SchemaSource(registry=access, file=schema, message=message)
            key = encoders_of(key_as, SchemaSource(registry=access), subject=f"{topic}-key", option="--key-as")
            return key, encoders_of(value_as, source, subject=f"{topic}-value", option="--as")

        return command(*args, encoders_for=encoders_for, **options)

    return _with_options(with_encoders, "avro, protobuf: JSON, encoded by the latest schema of TOPIC-value.")  # type: ignore[no-any-return]


def _with_options(command: Any, what: str) -> Any:
    return takes(
        click.option(
            "--as",
            "value_as",
            type=click.Choice(_FORMATS),
            default="auto",
            show_default=True,
            help=f"Format of values. {what} Avro needs ottla[avro], Protobuf ottla[protobuf].",
        ),
        click.option(
            "--key-as",
            type=click.Choice(_FORMATS),
            default="auto",
            show_default=True,
            help="Format of keys, as for --as.",
        ),
        click.option(
            "--registry",
            envvar="OTTLA_REGISTRY",
            metavar="URL",
            help="The schema registry of the schema ids in keys and values.",
        ),
        click.option(
            "--schema",
            type=FILE,
            help="Schema of the values: .avsc, or a file that `protoc --include_imports -o` wrote.",
        ),
        click.option("--message", metavar="NAME", help="The Protobuf message, as shop.Order."),
    )(command)
