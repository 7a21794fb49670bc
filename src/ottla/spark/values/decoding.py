"""Non-throwing decoding in DataFrames, batch and streaming.

    decoded = ottla.spark.decode(df, value=Avro(Order))
    good, bad = ottla.spark.split(decoded)

The decoded column replaces the bytes; `_error` is null for rows that decode, else it says what is wrong; `_raw` keeps
the original bytes of rows that do not. No row is dropped and nothing is raised for bad bytes: what happens to bad rows
is the pipeline's decision (`dead_letters` makes dead letters of them). With ``expiry=True`` the column `_expires_at`
says until when a row may be handled, of those whose sender said so: nothing is dropped for that either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.values.decoding import ColumnDecoder, decoder_for
from ottla.columnar.values.rows import ERROR
from ottla.errors import ConfigError
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.serdes import Serde
from ottla.spark.values.portable import Recipe, recipe_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

ERROR_COLUMN = "_error"
RAW_COLUMN = "_raw"
EXPIRES_COLUMN = "_expires_at"

_YEAR_9999_MS: Final = 253_370_764_800_000
"""Python's datetime, which rows come back as, goes no further."""

Part: TypeAlias = Literal["key", "value"]
PARTS: tuple[Part, ...] = ("key", "value")

ERROR_TYPE = pa.struct([pa.field("part", pa.string()), *ERROR])
RAW_TYPE = pa.struct([pa.field(part, pa.binary()) for part in PARTS])

Decodable: TypeAlias = "Serde[Any] | type | Callable[[], Serde[Any]] | None"
"""A serde, one of `bytes`, `str`, `int`, or a function that makes the serde (for one that cannot be pickled)."""


def decode(
    frame: DataFrame,
    *,
    value: Decodable = None,
    key: Decodable = None,
    value_type: pa.DataType | None = None,
    key_type: pa.DataType | None = None,
    expiry: bool = False,
) -> DataFrame:
    """Return `frame` with its `value` and/or `key` bytes decoded, and the columns `_error` and `_raw` behind all
    others.

    `value_type` and `key_type` are Arrow types, needed only where a serde does not say what its values look like. With
    `expiry` there is the column `_expires_at` as well, a timestamp from the header `ottla-expires-at`, null where a row
    does not expire. It needs the column `headers`.

    Raises `ConfigError` for a column that is missing or not binary, without a serde, and for a frame decoded before.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import BinaryType

    wanted: dict[Part, tuple[Decodable, pa.DataType | None]] = {"key": (key, key_type), "value": (value, value_type)}
    recipes: dict[Part, tuple[Recipe, pa.DataType | None]] = {}
    types: dict[str, DataType] = {}
    for part, (serde, kind) in wanted.items():
        if serde is None:
            continue
        field = next((f for f in frame.schema.fields if f.name == part), None)
        if field is None or not isinstance(field.dataType, BinaryType):
            found = "no such column" if field is None else field.dataType.simpleString()
            raise ConfigError(f"decode: column {part}: found {found}, wanted binary")
        recipe = recipe_of(serde)
        recipes[part] = (recipe, kind)
        types[part] = from_arrow_type(decoder_for(recipe(), type=kind).type)
    if not recipes:
        raise ConfigError("decode: give a serde for value, key or both")
    for name in (ERROR_COLUMN, RAW_COLUMN):
        if name in frame.columns:
            raise ConfigError(
                f"decode: there is a column {name} already; a frame is decoded once, key and value together"
            )
    decoded = frame.mapInArrow(partial(_decoded, recipes=recipes), with_decoded(frame.schema, types))
    return _with_expiry(decoded) if expiry else decoded


def with_decoded(schema: StructType, types: Mapping[str, DataType]) -> StructType:
    """Return Spark's schema with other types of the columns that are decoded, and `_error` and `_raw`."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(f.name, types.get(f.name, f.dataType)) for f in schema.fields]
    fields += [
        StructField(ERROR_COLUMN, from_arrow_type(ERROR_TYPE)),
        StructField(RAW_COLUMN, from_arrow_type(RAW_TYPE)),
    ]
    return StructType(fields)


def _with_expiry(decoded: DataFrame) -> DataFrame:
    """Return `frame` with the expiry in Spark's own expressions: rows need not go through Python for it."""
    from pyspark.sql import functions as f

    if "headers" not in decoded.columns:
        raise ConfigError("decode: expiry=True needs the column headers (read with option includeHeaders=true)")
    found = f.expr(f"filter(headers, header -> header.key = '{EXPIRES_HEADER}')")
    text = f.get(found, f.size(found) - 1).getField("value").cast("string")
    # A number that is no time of Spark's, or no number at all, is a header that says nothing.
    ms = f.when(text.rlike("^[0-9]{1,18}$"), text.cast("long"))
    moment = f.when(ms < _YEAR_9999_MS, f.timestamp_millis(ms))
    return decoded.withColumn(EXPIRES_COLUMN, moment)


def split(decoded: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return (good, bad): rows that decoded, without the extra columns; and rows that did not, with their original
    bytes.

    `bad` has the columns of the source again (key and value are the original bytes), and `_error`.

    Raises `ConfigError` when the frame is not from `decode`.
    """
    from pyspark.sql import functions as f

    if ERROR_COLUMN not in decoded.columns:
        raise ConfigError(f"split: found no column {ERROR_COLUMN}; pass what decode() returned")
    good = decoded.filter(f.col(ERROR_COLUMN).isNull()).drop(ERROR_COLUMN, RAW_COLUMN)
    columns = [c for c in decoded.columns if c != RAW_COLUMN]
    bad = decoded.filter(f.col(ERROR_COLUMN).isNotNull()).select(
        *[f.col(f"{RAW_COLUMN}.{c}").alias(c) if c in PARTS else f.col(c) for c in columns]
    )
    return good, bad


def _decoded(
    batches: Iterator[pa.RecordBatch], *, recipes: dict[Part, tuple[Recipe, pa.DataType | None]]
) -> Iterator[pa.RecordBatch]:
    """Run in the workers: one batch in, one batch out. It is pickled with recipes, and makes decoders late."""
    decoders = {part: decoder_for(recipe(), type=kind) for part, (recipe, kind) in recipes.items()}
    for batch in batches:
        yield decode_batch(batch, decoders)


def decode_batch(batch: pa.RecordBatch, decoders: dict[Part, ColumnDecoder]) -> pa.RecordBatch:
    """Return one batch with decoded columns, `_error` and `_raw`."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    raw = {part: columns.get(part) for part in PARTS}
    topic = _some_topic(columns.get("topic"))
    errors: list[pa.Array] = []
    for part, decoder in decoders.items():
        columns[part], found = decoder.decode(columns[part], topic=topic, part=part)
        errors.append(_with_part(found, part))
    error = errors[0] if len(errors) == 1 else pc.coalesce(*errors)
    is_bad = error.is_valid()
    kept = [_binary(raw[part], batch.num_rows) for part in PARTS]
    columns[ERROR_COLUMN] = error
    columns[RAW_COLUMN] = _only_where(pa.StructArray.from_arrays(kept, fields=list(RAW_TYPE)), is_bad)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _with_part(errors: pa.Array, part: Part) -> pa.Array:
    parts = pa.repeat(pa.scalar(part, pa.string()), len(errors))
    members: Sequence[pa.Array] = [errors.field(i) for i in range(errors.type.num_fields)]
    with_part = pa.StructArray.from_arrays([parts, *members], fields=list(ERROR_TYPE))
    return _only_where(with_part, errors.is_valid())


def _only_where(column: pa.Array, present: pa.Array) -> pa.Array:
    """Return the column with null in the other rows. As indices: `if_else` copies every value, and most rows are
    good."""
    keep = present.to_numpy(zero_copy_only=False)
    return column.take(pa.array(np.arange(len(column)), mask=~keep))


def _binary(column: pa.Array | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.binary()) if column is None or column.type != pa.binary() else column


def _some_topic(column: pa.Array | None) -> str:
    return "" if column is None or not len(column) or not column[0].is_valid else str(column[0].as_py())
