"""Decoding inside the source: how a serde travels in an option, and what the source's columns are then.

A source gets nothing but text from Spark. The option holds pickled recipes (`portable.py`), made by `read` and
`read_stream` from serdes of the same program; it is not meant to be written by hand.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ottla.columnar.arrays.schema import arrow_schema
from ottla.columnar.values.decoding import ColumnDecoder, decoder_for
from ottla.errors import ConfigError
from ottla.spark.values.decoding import PARTS, Decodable, Part, with_decoded
from ottla.spark.values.portable import Recipe, recipe_of


def pack_recipes(*, value: Decodable, key: Decodable) -> str | None:
    """Return the option's text for these serdes, or None when nothing is to be decoded."""
    recipes: dict[Part, Recipe] = {}
    given: dict[Part, Decodable] = {"key": key, "value": value}
    for part, serde in given.items():
        if serde is not None:
            recipes[part] = recipe_of(serde)
            decoder_for(recipes[part]())  # what has no columns is said here, not in a worker
    if not recipes:
        return None
    return base64.b64encode(pickle.dumps(recipes)).decode()


@lru_cache(maxsize=8)
def unpack_decoders(packed: str) -> dict[Part, ColumnDecoder]:
    """Return the decoders of an option's text; made once per process."""
    recipes: dict[Part, Recipe] = pickle.loads(base64.b64decode(packed))
    return {part: decoder_for(recipe()) for part, recipe in recipes.items()}


def decoded_schema(columns: Sequence[str], packed: str) -> Any:
    """Return the Spark schema of a source with these columns and this decoding."""
    from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

    decoders = unpack_decoders(packed)
    for part in decoders:
        if part not in columns:
            raise ConfigError(f"columns: found {', '.join(columns)}, wanted {part} among them, because it is decoded")
    types: dict[str, Any] = {part: from_arrow_type(decoders[part].type) for part in PARTS if part in decoders}
    return with_decoded(from_arrow_schema(arrow_schema(columns)), types)
