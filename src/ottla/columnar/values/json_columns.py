"""JSON objects, a column at a time: no Python object for a row, where the row can be proved to be a plain one.

A row is plain if the bytes between its values are those of a row beside it (`row_template.py`), no text in it has an
escape, and each value is one of its field's type by the grammar of JSON (`json_numbers.py`). Such a row has just one
meaning, the one that the row decoder gives it. All other rows are marked, and decided by that (`rows.py`), which also
writes the error message: this reader may refuse anything, and never raises for bad bytes.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.columnar.arrays.binary import binary_array
from ottla.columnar.arrays.varints import Flags, Ints
from ottla.columnar.values.json_bitmaps import is_word
from ottla.columnar.values.json_numbers import read_numbers, wrong_numbers
from ottla.columnar.values.json_text import ByteSpans, JsonText
from ottla.columnar.values.json_types import JsonField, JsonRecord
from ottla.columnar.values.row_template import RowTemplate, template_of

PAYS_FROM: Final = 4_096
"""Fewer rows are decoded row by row: a layout takes some two hundred calls of numpy and Arrow, however few have it."""
MOST_LAYOUTS: Final = 6
"""A topic of several producers has several layouts, and so has one whose producer leaves out what is null."""
_PAYS_FROM_SHARE: Final = 1 / 8
"""A layout that fewer rows have is the last one: the next would have fewer still."""
_CHUNK_BYTES: Final = 8 << 20
"""Number of rows whose value positions are in memory at a time."""


def read_json_columns(record: JsonRecord, values: pa.Array, *, skip: int = 0) -> tuple[pa.Array, Flags]:
    """Return the values as an Arrow column of `record.arrow`, and which rows are not to be trusted. Null stays null.

    `skip` bytes stand in front of each value (a registry's schema id); only the first is looked at, which is zero.
    """
    columns: list[pa.Array] = []
    bad: list[Flags] = []
    for chunk in _chunks(values):
        column, wrong = _read(record, chunk, skip)
        columns.append(column)
        bad.append(wrong)
    if not columns:
        return pa.nulls(0, record.arrow), np.zeros(0, dtype=np.bool_)
    return pa.concat_arrays(columns) if len(columns) > 1 else columns[0], np.concatenate(bad)


def _chunks(values: pa.Array) -> list[pa.Array]:
    """Return stretches of about equal size in bytes."""
    if not len(values):
        return []
    edges = np.frombuffer(values.buffers()[1], dtype=np.int32, count=len(values) + 1, offset=values.offset * 4)
    size = int(edges[-1]) - int(edges[0])
    count = -(-size // _CHUNK_BYTES)
    cuts = int(edges[0]) + np.arange(1, count, dtype=np.int64) * size // max(count, 1)
    places = [0, *np.unique(np.searchsorted(edges, cuts)).tolist(), len(values)]
    return [values.slice(low, high - low) for low, high in itertools.pairwise(places) if high > low]


def _read(record: JsonRecord, values: pa.Array, skip: int) -> tuple[pa.Array, Flags]:
    bad: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    owners: list[Ints] = []
    pieces: list[pa.Array] = []
    if len(values) >= PAYS_FROM:
        text = JsonText(values, skip=skip)
        pending = np.flatnonzero(text.is_plain)
        for attempt in range(MOST_LAYOUTS):
            if len(pending) < PAYS_FROM:
                break
            example = pending[len(pending) * attempt // MOST_LAYOUTS]
            layout = template_of(record, text.row(example))
            if layout is None:
                continue
            rows, spans = text.find(layout, pending)
            if len(rows):
                piece, wrong = _columns(record, layout, text, spans, len(rows))
                owners.append(rows)
                pieces.append(piece)
                bad[rows] = wrong
            if len(rows) == len(pending) or len(rows) < len(pending) * _PAYS_FROM_SHARE:
                break
            pending = np.setdiff1d(pending, rows, assume_unique=True)
    return _joined(record, owners, pieces, len(values)), bad


def _joined(record: JsonRecord, owners: list[Ints], pieces: list[pa.Array], count: int) -> pa.Array:
    """Return the rows of all layouts at their places; null for the others."""
    if not pieces:
        return pa.nulls(count, record.arrow)
    if len(pieces[0]) == count:
        return pieces[0]
    rows = np.concatenate(owners)
    places = np.zeros(count, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    is_missing = np.ones(count, dtype=np.bool_)
    is_missing[rows] = False
    return pa.concat_arrays(pieces).take(pa.array(places, mask=is_missing))


def _columns(
    record: JsonRecord, layout: RowTemplate, text: JsonText, spans: list[ByteSpans], count: int
) -> tuple[pa.Array, Flags]:
    """Return the values of rows that have the layout, and which of them are wrong."""
    wrong = np.zeros(count, dtype=np.bool_)
    found: dict[bytes, pa.Array] = {}
    for place, span in zip(layout.places, spans, strict=True):
        if place.field is not None:
            found[place.field.name], doubtful = _READERS[place.field.kind](place.field, text, span)
            wrong |= doubtful
        elif not place.is_text:
            wrong |= _wrong_scalars(text, span)
    columns = [found[f.name] if f.name in found else f.defaults(count) for f in record.fields]
    return pa.StructArray.from_arrays(columns, fields=list(record.arrow)), wrong


def _texts(field: JsonField, text: JsonText, span: ByteSpans) -> tuple[pa.Array, Flags]:
    begin, end, is_text = span
    if is_text is None:
        wrong = is_missing = np.zeros(len(begin), dtype=np.bool_)
    else:
        is_missing = ~is_text
        wrong = is_missing
        if field.is_optional:
            wrong = is_missing & ~is_word(b"null", text.words.at(begin), end - begin)
        begin, end = begin + is_text, np.where(is_text, end - 1, begin)
    raw = binary_array(text.data, begin, end, is_missing)
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers()), wrong


def _booleans(field: JsonField, text: JsonText, span: ByteSpans) -> tuple[pa.Array, Flags]:
    words, size = text.words.at(span.begin), span.end - span.begin
    is_true = is_word(b"true", words, size)
    wrong = ~(is_true | is_word(b"false", words, size))
    if field.is_optional:
        is_null = is_word(b"null", words, size)
        return pa.array(is_true, mask=is_null), wrong & ~is_null
    return pa.array(is_true), wrong


def _numbers(field: JsonField, text: JsonText, span: ByteSpans) -> tuple[pa.Array, Flags]:
    is_missing = np.zeros(len(span.begin), dtype=np.bool_)
    end = span.end
    if field.is_optional:
        is_missing = is_word(b"null", text.words.at(span.begin), end - span.begin)
        end = np.where(is_missing, span.begin, end)
    return read_numbers(binary_array(text.data, span.begin, end, is_missing), field.kind)


_READERS: Final = {"str": _texts, "bool": _booleans, "int": _numbers, "float": _numbers}


def _wrong_scalars(text: JsonText, span: ByteSpans) -> Flags:
    """Return which values of an unused field are invalid JSON."""
    words, size = text.words.at(span.begin), span.end - span.begin
    is_known = is_word(b"null", words, size) | is_word(b"true", words, size) | is_word(b"false", words, size)
    raw = binary_array(text.data, span.begin, np.where(is_known, span.begin, span.end), is_known)
    return wrong_numbers(raw, has_fraction=True)
