"""Raising one error object more than once."""

from __future__ import annotations

import sys
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def again(error: E) -> E:
    """Return `error` for `raise again(error)`, where the object is kept and may have been raised here before.

    Python adds the frames of each raise to the traceback that the object has, and keeps their variables with them: a
    refusal that is raised for every call of a closed client would keep all of these calls. The frames that an earlier
    raise by the same function added are taken off; those from which the error came stay.
    """
    code = sys._getframe(1).f_code
    kept = entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code is code:
            kept = entry.tb_next
        entry = entry.tb_next
    return error.with_traceback(kept)
