"""Converts an operating system error into a BrokerError with the path and a remedy."""

from __future__ import annotations

import errno

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space, or lower retention.bytes or retention.ms; nothing was lost",
    errno.EDQUOT: "the disk quota is used up: raise it, or lower retention.bytes or retention.ms; nothing was lost",
    errno.EACCES: "permission denied: give the broker's user write access, or set log.dirs to another directory",
    errno.EPERM: "not permitted: give the broker's user write access, or set log.dirs to another directory",
    errno.EROFS: "the file system is read-only: remount it writable, or set log.dirs to another directory",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine: raise fs.file-max",
    errno.EIO: "the disk failed: replace it; restart the broker to recover what can be read",
}


_GONE = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO})


def takes_dir_offline(error: OSError) -> bool:
    """Return whether the disk can no longer be trusted until an operator has checked it.

    A failed fsync is such an error: the data may be lost, and a second fsync would report success. A full disk is not:
    it refuses new data and keeps what it has.
    """
    return error.errno in _GONE


def offline_error(path: str, reason: str) -> BrokerError:
    """Return the error for all requests to an offline directory."""
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline since {reason}")


def storage_error(error: OSError, *, path: str, doing: str) -> BrokerError:
    """Return KAFKA_STORAGE_ERROR, which clients retry: the disk may be freed, or another broker may lead."""
    remedy = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}: check the directory and restart the broker")
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {doing} failed, {remedy}")
