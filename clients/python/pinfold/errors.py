"""Errors as exceptions: one class per gRPC code, the reason as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import grpc

DOMAIN = "pinfold"
_DETAILS_KEY = "grpc-status-details-bin"


class PinfoldError(Exception):
    """What the supervisor answered in place of a result.

    `reason` is an UPPER_SNAKE word (see docs/errors.md), empty when the error came from
    below, such as a lost connection. `metadata` are the reason's details. `retry_after` is in
    seconds, `None` when the supervisor named none. `str()` is one line for people.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        code: grpc.StatusCode | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata: dict[str, str] = dict(metadata or {})
        self.retry_after = retry_after
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message or self.reason or self.code.name


class InvalidRequestError(PinfoldError):
    """The request is wrong in itself; nothing was started or changed."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(PinfoldError):
    """No such id, or it belongs to somebody else: the two look the same."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(PinfoldError):
    """The id is taken by something with other arguments."""

    code = grpc.StatusCode.ALREADY_EXISTS


class StateError(PinfoldError):
    """Not in this state, such as a cancel of a call that is done."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class OutOfRangeError(PinfoldError):
    """A revision or an offset that is not there (any more)."""

    code = grpc.StatusCode.OUT_OF_RANGE


class LimitError(PinfoldError):
    """A limit is reached; the message names it."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class PermissionDeniedError(PinfoldError):
    """The token does not reach this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(PinfoldError):
    """No token, or one that is not valid."""

    code = grpc.StatusCode.UNAUTHENTICATED


class UnavailableError(PinfoldError):
    """The supervisor cannot be reached, or takes nothing new (draining)."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineError(PinfoldError):
    """The client's own deadline passed. What was asked for may have happened."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class AbortedError(PinfoldError):
    """Another change came between; repeat it."""

    code = grpc.StatusCode.ABORTED


class InternalError(PinfoldError):
    """A fault in the supervisor or the connection."""

    code = grpc.StatusCode.INTERNAL


_BY_CODE: dict[grpc.StatusCode, type[PinfoldError]] = {
    kind.code: kind
    for kind in (
        InvalidRequestError,
        NotFoundError,
        AlreadyExistsError,
        StateError,
        OutOfRangeError,
        LimitError,
        PermissionDeniedError,
        UnauthenticatedError,
        UnavailableError,
        DeadlineError,
        AbortedError,
        InternalError,
    )
}


class _RpcFailure(Protocol):
    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def from_rpc(failure: _RpcFailure) -> PinfoldError:
    """The exception for a failed RPC, with what its status details say."""
    code = failure.code()
    message = " ".join((failure.details() or "").split())
    reason, retry_after = "", None
    metadata: dict[str, str] = {}
    for key, value in failure.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            reason, metadata, retry_after = _read_details(value)
    kind = _BY_CODE.get(code, PinfoldError)
    return kind(message, reason=reason, metadata=metadata, code=code, retry_after=retry_after)


def _read_details(data: bytes) -> tuple[str, dict[str, str], float | None]:
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    reason, retry_after = "", None
    metadata: dict[str, str] = {}
    try:
        status = status_pb2.Status.FromString(data)
        for detail in status.details:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo.FromString(detail.value)
                if info.domain == DOMAIN:
                    reason, metadata = info.reason, dict(info.metadata)
            elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                retry = error_details_pb2.RetryInfo.FromString(detail.value)
                retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    except DecodeError:
        # The plain status is still an answer.
        pass
    return reason, metadata, retry_after
