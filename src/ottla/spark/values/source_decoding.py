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

from ottla.columnar.values.decoding import ColumnDecoder, decoder_for
from ottla.errors import ConfigError
from ottla.serdes import as_serde
from ottla.spark.values.decoding import ERROR_COLUMN, ERROR_TYPE, PARTS, RAW_COLUMN, RAW_TYPE, Decodable, Part
from ottla.spark.values.portable import Recipe, recipe_of
from ottla.spark.values.schema import spark_schema


def pack_recipes(*, value: Decodable, key: Decodable) -> str | None:
    """Return the option's text for these serdes, or None when nothing is to be decoded."""
    recipes: dict[Part, Recipe] = {}
    for part, serde in (("key", key), ("value", value)):
        if serde is not None:
            is_maker = callable(serde) and not isinstance(serde, type)
            recipes[part] = recipe_of(serde if is_maker else as_serde(serde))  # type: ignore[index]
            decoder_for(recipes[part]())  # type: ignore[index]  # what has no columns is said here, not in a worker
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
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    plain, decoders = spark_schema(columns), unpack_decoders(packed)
    for part in decoders:
        if part not in columns:
            raise ConfigError(f"columns: found {', '.join(columns)}, wanted {part} among them, because it is decoded")
    types = {part: from_arrow_type(decoders[part].type) for part in PARTS if part in decoders}
    fields = [StructField(f.name, types.get(f.name, f.dataType)) for f in plain.fields]  # type: ignore[call-overload]
    fields += [
        StructField(ERROR_COLUMN, from_arrow_type(ERROR_TYPE)),
        StructField(RAW_COLUMN, from_arrow_type(RAW_TYPE)),
    ]
    return StructType(fields)
