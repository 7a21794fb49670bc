"""Where each record of a batch starts.

Records follow each other with a length in front of each, so one can be found only through the one before it. Four ways
to walk them, chosen batch by batch and always with the same answer:

- **stride**: guess that the next records are as long as this one, and compare all their length bytes at once. A run
  that matches is right by induction: record k starts where record k-1 ends. Services mostly write records of one size
  for long runs, and a run costs a few nanoseconds per record.
- **marks**: guess that the next lengths take two bytes each. The byte behind a length is a record's attributes, which
  are zero, so whatever may be such a length is found in one look at all bytes. Lengths that lead each to the next one
  are right by the same induction. Used where lengths differ from record to record, as those of JSON do; it takes a
  quarter of the time of a step, and other threads have the interpreter meanwhile.
- **stretch**: guess that the next lengths take two bytes each, walk on that without a look at anything else, and check
  all of it at once. What is right up to the first that is not is right by the same induction. Used where there are too
  many marks, as in binary values; it takes half as long as a step.
- **step**: read one length at a time (about 150 ns per record).
"""

from __future__ import annotations

import numpy as np

from ottla.columnar.arrays.varints import BadRow, Bytes8, Ints

TRY_STRIDE_AFTER = 4
"""So many equal lengths in a row make it worth comparing a whole run."""
STRIDE_PAYS_FROM = 16
"""A run shorter than this was a lost bet: numpy's call overhead is about that many steps."""
STRETCH_AFTER = 8
"""So many lengths of two bytes that differ from the one before make marks or a stretch worth a try."""
MARKS_PAY_UNTIL = 1_024
"""A longer record is found sooner by a step than by a look at its bytes."""
MARKS_BYTES = 1 << 18
"""Marks are looked for in so many bytes at a time: they stay in a processor's cache."""
STRETCH = 2_048
PLAIN_INTEGERS = 1 << 16
"""So many positions are Python integers at a time: one takes 40 bytes, and the shortest record seven."""


def record_bodies(array: Bytes8, start: int, end: int, count: int) -> Ints:
    """Return the position of each record's body (behind its length) among `count` records in `array[start:end]`.

    Raises `BadRow` where the records do not fill these bytes exactly: each body lies before the next one's.
    """
    data = array.data
    bodies: list[int] = []
    parts: list[Ints] = []
    append = bodies.append
    position = start
    left = count
    last_length = -1
    equal = 0
    bet_after = TRY_STRIDE_AFTER
    plain: bytes | None = None
    differing = 0
    stretch_after = STRETCH_AFTER
    has_marks = True
    while left:
        turn_ends = max(0, left - PLAIN_INTEGERS)
        while left > turn_ends:
            if position >= end:
                raise BadRow(count - left, f"it ends with {left} of its {count} records missing")
            byte = data[position]
            if byte < 0x80:
                length = byte >> 1
                width = 1
            elif position + 1 < end and (second := data[position + 1]) < 0x80:  # 64 to 8,191 bytes: the usual case
                length = (byte & 0x7F | second << 7) >> 1
                width = 2
            else:
                length, width = _long_length(data, position, end, count - left)
            if byte & 1:
                raise BadRow(count - left, f"record {count - left} of {count} has a negative length")
            body = position + width
            append(body)
            position = body + length
            left -= 1
            if length != last_length:
                last_length = length
                equal = 0
                differing += 1
                if width == 1:
                    differing = 0
                elif differing >= stretch_after and left >= STRIDE_PAYS_FROM:
                    starts = None
                    if has_marks and length < MARKS_PAY_UNTIL:
                        starts = _marks(array, position, end, left)
                        has_marks = starts is not None
                    if starts is None:
                        if plain is None:
                            plain = array[start:end].tobytes()
                        starts = _stretch(array, plain, start, position, min(left, STRETCH))
                    parts += [np.array(bodies, dtype=np.int64), starts[:-1] + 2]
                    bodies.clear()
                    position = int(starts[-1])
                    left -= len(starts) - 1
                    pays = len(starts) > STRIDE_PAYS_FROM
                    stretch_after = 1 if pays else min(max(stretch_after, STRETCH_AFTER) * 2, 1 << 20)
                    differing = 0
                continue
            equal += 1
            if equal < bet_after or left < STRIDE_PAYS_FROM:
                continue
            run = _run_of_equal(array, position, end, width, width + length, left, body - width)
            if run:
                parts.append(np.array(bodies, dtype=np.int64))
                bodies.clear()
                parts.append(np.arange(run, dtype=np.int64) * (width + length) + (position + width))
                position += run * (width + length)
                left -= run
            # A lost bet makes the next one later, so that mixed sizes do not pay for guessing.
            bet_after = TRY_STRIDE_AFTER if run >= STRIDE_PAYS_FROM else min(bet_after * 2, 1 << 20)
            equal = 0
        parts.append(np.array(bodies, dtype=np.int64))
        bodies.clear()
    if position != end:
        taken, there = position - start, end - start
        raise BadRow(count - 1, f"its {count} records take {taken} bytes, but it has {there} bytes of records")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _run_of_equal(array: Bytes8, position: int, end: int, width: int, stride: int, left: int, model: int) -> int:
    """Return how many records from `position` on have the same length bytes as the one at `model`."""
    fit = min(left, (end - position) // stride)
    if fit <= 0:
        return 0
    window = array[position : position + (fit - 1) * stride + width]
    same = window[0::stride] == array[model]
    for k in range(1, width):
        same &= window[k::stride] == array[model + k]
    first_other = int(same.argmin())
    return fit if same[first_other] else first_other


def _marks(array: Bytes8, position: int, end: int, most: int) -> Ints | None:
    """Return the starts of at most `most` next records, and the end; None if the marks do not show them."""
    window = array[position : min(end, position + MARKS_BYTES)]
    starts = np.flatnonzero((window[:-2] >= 0x80) & (window[2:] == 0))
    if len(starts) > len(window) >> 5:
        return None
    for is_second_look in (False, True):
        first, second = window[starts], window[starts + 1]
        behind = starts + ((first & 0x7F) >> 1 | second.astype(np.int16) << 6) + 2
        fits = second | first << 7 < 0x80  # a length of two bytes, and not negative
        fits[:1] &= starts[:1] == 0
        fits[1:] &= starts[1:] == behind[:-1]
        count = len(fits) if fits.all() else int(fits.argmin())
        if count == len(fits) or is_second_look:
            break
        # Bytes of keys and values may look like marks, as those of a schema id do. No other mark leads to them.
        is_reached = np.zeros(len(window) + 1, dtype=np.bool_)
        is_reached[np.minimum(behind, len(window))] = True
        is_reached[0] = True
        starts = starts[is_reached[starts]]
    if count <= max(STRIDE_PAYS_FROM, len(fits) >> 1):
        return None
    count = min(count, most)
    return np.append(starts[:count], behind[count - 1]) + position


def _stretch(array: Bytes8, plain: bytes, base: int, position: int, count: int) -> Ints:
    """Return the starts of `count` records, and the end, if their lengths take two bytes each; fewer otherwise.

    `plain` is what the array holds from `base` on: bytes are read twice as fast as a memoryview.
    """
    at = position - base
    try:
        found = [(at := at + 2 + ((plain[at] & 0x7F | plain[at + 1] << 7) >> 1)) for _ in range(count)]
    except IndexError:
        return np.array([position], dtype=np.int64)  # a length that lies: the steps say where
    starts = np.empty(count + 1, dtype=np.int64)
    starts[0] = position
    starts[1:] = found
    starts[1:] += base
    lengths = starts[:-1]
    first, second = array[lengths], array[lengths + 1]
    wrong = np.flatnonzero((first < 0x80) | (second >= 0x80) | (first & 1).astype(np.bool_))
    return starts[: wrong[0] + 1] if len(wrong) else starts


def _long_length(data: memoryview, position: int, end: int, row: int) -> tuple[int, int]:
    """Return a length of two bytes or more: (length, bytes it took)."""
    value = 0
    shift = 0
    for at in range(position, min(end, position + 5)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1, at + 1 - position
        shift += 7
    raise BadRow(row, f"the length of record {row} is cut off")
