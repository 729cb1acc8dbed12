"""Errors on the wire: one table from reasons to codes, one way to say them.

A status carries a `google.rpc.ErrorInfo` (domain "pinfold", the reason, details as metadata)
and where it fits a `BadRequest` or `RetryInfo`. docs/errors.md has the same table for people.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.render import errors as texts
from pinfoldd.render.headers import one_line

DOMAIN = "pinfold"

_C = grpc.StatusCode

CODES: dict[Reason, grpc.StatusCode] = {
    Reason.AGENT_UNKNOWN: _C.NOT_FOUND,
    Reason.AGENT_STOPPED: _C.FAILED_PRECONDITION,
    Reason.AGENT_ID_REUSED: _C.ALREADY_EXISTS,
    Reason.AGENT_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.AGENT_DEPTH_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.ROLE_UNKNOWN: _C.INVALID_ARGUMENT,
    Reason.TURN_UNKNOWN: _C.FAILED_PRECONDITION,
    Reason.PROMPT_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.CALL_UNKNOWN: _C.NOT_FOUND,
    Reason.CALL_ID_REUSED: _C.ALREADY_EXISTS,
    Reason.CALL_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.GROUP_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.TASK_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.NO_CONTROL_SURFACE: _C.FAILED_PRECONDITION,
    Reason.CALL_ALREADY_CANCELED: _C.FAILED_PRECONDITION,
    Reason.CALL_ALREADY_DONE: _C.FAILED_PRECONDITION,
    Reason.CALL_NOT_CANCELLABLE: _C.FAILED_PRECONDITION,
    Reason.CANCEL_TARGET_UNKNOWN: _C.NOT_FOUND,
    Reason.CALL_HAS_NO_INPUT: _C.FAILED_PRECONDITION,
    Reason.RESULT_CONSUMED: _C.FAILED_PRECONDITION,
    Reason.CALL_RETURNED_NORMALLY: _C.FAILED_PRECONDITION,
    Reason.WAIT_IN_PROGRESS: _C.FAILED_PRECONDITION,
    Reason.BARE_WAIT_IN_PROGRESS: _C.FAILED_PRECONDITION,
    Reason.INPUT_WAIT_IN_PROGRESS: _C.FAILED_PRECONDITION,
    Reason.NOTHING_TO_WAIT_FOR: _C.FAILED_PRECONDITION,
    Reason.WAIT_ID_REUSED: _C.ALREADY_EXISTS,
    Reason.WAIT_CANCELLED: _C.ABORTED,
    Reason.WAIT_LIMIT: _C.RESOURCE_EXHAUSTED,
    Reason.RECIPIENT_UNKNOWN: _C.NOT_FOUND,
    Reason.RECIPIENT_STOPPED: _C.FAILED_PRECONDITION,
    Reason.WATCH_SELF: _C.INVALID_ARGUMENT,
    Reason.WATCH_TARGET_UNKNOWN: _C.NOT_FOUND,
    Reason.WATCH_TARGET_STOPPED: _C.FAILED_PRECONDITION,
    Reason.WATCH_CYCLE: _C.FAILED_PRECONDITION,
    Reason.REQUEST_ID_REUSED: _C.ALREADY_EXISTS,
    Reason.TASK_UNKNOWN: _C.NOT_FOUND,
    Reason.TASK_EXPIRED: _C.NOT_FOUND,
    Reason.DRAINING: _C.UNAVAILABLE,
    Reason.INVALID_ARGUMENT: _C.INVALID_ARGUMENT,
    Reason.UNAUTHENTICATED: _C.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: _C.PERMISSION_DENIED,
    Reason.REVISION_COMPACTED: _C.OUT_OF_RANGE,
    Reason.REVISION_IN_FUTURE: _C.OUT_OF_RANGE,
    Reason.STORE_FAILING: _C.UNAVAILABLE,
    Reason.KEEPER_UNAVAILABLE: _C.UNAVAILABLE,
    Reason.TOOL_UNKNOWN: _C.INVALID_ARGUMENT,
    Reason.TOKEN_UNKNOWN: _C.NOT_FOUND,
}

_RETRY_SECONDS = {Reason.STORE_FAILING: 1, Reason.KEEPER_UNAVAILABLE: 1}


class Invalid(Rejected):
    """A field of a request that cannot be accepted. `message` says what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(Reason.INVALID_ARGUMENT, field=field, message=message)
        self.field = field
        self.message = message


def message(error: Rejected) -> str:
    """The one line of the status."""
    if isinstance(error, Invalid):
        # Texts of the contract name their field themselves.
        return error.message if error.message[:1] == "`" else f"{error.field}: {error.message}"
    return texts.text(error.reason, error.details)


def status(error: Rejected) -> tuple[grpc.StatusCode, str, bytes]:
    """The code, the text and the serialized google.rpc.Status."""
    code = CODES[error.reason]
    # Status text travels in a header: short and printable, whatever a client put into an id.
    text = message(error).encode("ascii", "backslashreplace").decode()[:1000]
    details = [
        error_details_pb2.ErrorInfo(
            reason=error.reason,
            domain=DOMAIN,
            metadata={key: _clean(value) for key, value in error.details.items()},
        )
    ]
    packed = [_packed(detail) for detail in details]
    if isinstance(error, Invalid):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_clean(error.field), description=_clean(error.message)
        )
        packed.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    if error.reason in _RETRY_SECONDS:
        delay = duration_pb2.Duration(seconds=_RETRY_SECONDS[error.reason])
        packed.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    full = status_pb2.Status(code=code.value[0], message=text, details=packed)
    return code, text, full.SerializeToString()


def _packed(message: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)  # type: ignore[arg-type]
    return packed


def _clean(value: str) -> str:
    return one_line(value)[:400].encode("utf-8", "replace").decode()


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: Rejected) -> NoReturn:
    """End the RPC with this error."""
    code, text, full = status(error)
    await context.abort(code, text, (("grpc-status-details-bin", full),))
    raise AssertionError("abort does not return")
