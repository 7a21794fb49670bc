"""Actions of a fault on the requests that it selects. One fault has one action; two actions are two faults."""

from __future__ import annotations

from enum import Enum
from typing import Any

from broker_embedded.cluster.faults.selector import InvalidFault
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode


class Phase(Enum):
    """When a fault acts."""

    BEFORE_APPLY = "before"
    """The request is not applied (or later)."""
    AFTER_APPLY = "after"
    """The request is applied; its response is delayed, changed or lost."""


@fact
class Fail:
    """Answer an error: for the partitions that the selector names, else for the whole request."""

    code: ErrorCode
    message: str = ""
    phase: Phase = Phase.BEFORE_APPLY


@fact
class Disconnect:
    """Close the connection instead of answering."""

    phase: Phase = Phase.BEFORE_APPLY


@fact
class Delay:
    """Delay this request, and later ones of its connection; all others continue."""

    ms: int
    phase: Phase = Phase.BEFORE_APPLY

    def __post_init__(self) -> None:
        if self.ms < 0:
            raise InvalidFault(f"delay_ms: found {self.ms}, wanted 0 or more")


@fact
class Hold:
    """Hold the request, or its response, until the fault is released. The request is executed then even if its client
    has disconnected: its bytes had arrived."""

    phase: Phase = Phase.BEFORE_APPLY


@fact
class Corrupt:
    """Change bytes of the records in the response. Every client that checks CRCs notices."""

    position: int = -1
    """Position of the change; negative from the end."""
    length: int = 1
    mask: int = 0xFF
    """Mask that the bytes are XORed with."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidFault(f"corrupt: found length {self.length}, wanted 1 or more")
        if not 1 <= self.mask <= 0xFF:
            raise InvalidFault(f"corrupt: found mask {self.mask}, wanted 1 to 255")

    def apply(self, records: bytes) -> bytes:
        """Return a damaged copy; an equal one if there are no bytes to change."""
        changed = bytearray(records)
        start = self.position if self.position >= 0 else max(0, len(changed) + self.position)
        for at in range(start, min(start + self.length, len(changed))):
            changed[at] ^= self.mask
        return bytes(changed)


Action = Fail | Disconnect | Delay | Hold | Corrupt


def parse_action(
    *,
    error: ErrorCode | str | int | None = None,
    message: str = "",
    disconnect: bool = False,
    delay_ms: int | None = None,
    hold: bool = False,
    corrupt: bool | Corrupt = False,
    after_apply: bool = False,
) -> Action:
    """Return the single match."""
    named = {
        "error": error is not None,
        "disconnect": bool(disconnect),
        "delay_ms": delay_ms is not None,
        "hold": bool(hold),
        "corrupt": bool(corrupt),
    }
    wanted = [name for name, is_named in named.items() if is_named]
    if len(wanted) != 1:
        found = " and ".join(wanted) or "nothing"
        raise InvalidFault(f"action: found {found}, wanted one of {', '.join(named)}")
    if message and error is None:
        raise InvalidFault(f"message: found {message!r} with {wanted[0]}, wanted it with error only")
    phase = Phase.AFTER_APPLY if after_apply else Phase.BEFORE_APPLY
    if error is not None:
        return Fail(code=parse_error(error), message=message, phase=phase)
    if disconnect:
        return Disconnect(phase=phase)
    if delay_ms is not None:
        return Delay(ms=delay_ms, phase=phase)
    if hold:
        return Hold(phase=phase)
    return corrupt if isinstance(corrupt, Corrupt) else Corrupt()


def parse_error(value: ErrorCode | str | int) -> ErrorCode:
    """Parse `NOT_LEADER_OR_FOLLOWER` or 6."""
    if isinstance(value, int):
        try:
            code = ErrorCode(value)
        except ValueError:
            raise InvalidFault(f"error: found {value}, which is no error code of Kafka") from None
    else:
        name = value.strip().upper().replace("-", "_")
        if name not in ErrorCode.__members__:
            import difflib

            close = difflib.get_close_matches(name, ErrorCode.__members__, n=1)
            hint = f"; did you mean {close[0]}?" if close else ", such as NOT_LEADER_OR_FOLLOWER"
            raise InvalidFault(f"error: found {value!r}, wanted the name of an error code{hint}")
        code = ErrorCode[name]
    if code is ErrorCode.NONE:
        raise InvalidFault("error: found NONE, which is no error")
    return code


def action_to_json(action: Action) -> dict[str, Any]:
    """As the control API takes and shows it."""
    shown: dict[str, Any]
    if isinstance(action, Fail):
        shown = {"error": action.code.name, **({"message": action.message} if action.message else {})}
    elif isinstance(action, Disconnect):
        shown = {"disconnect": True}
    elif isinstance(action, Delay):
        shown = {"delay_ms": action.ms}
    elif isinstance(action, Hold):
        shown = {"hold": True}
    else:
        return {"corrupt": {"position": action.position, "length": action.length, "mask": action.mask}}
    if action.phase is Phase.AFTER_APPLY:
        shown["after_apply"] = True
    return shown
