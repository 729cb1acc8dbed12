"""Statuses become exceptions that carry the reason."""

from __future__ import annotations

import grpc
import pytest
from fake import Fake, forever, refuse, sequence

from pinfold import Client, errors
from pinfold.v1 import supervisor_service_pb2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequestError),
        (grpc.StatusCode.NOT_FOUND, errors.NotFoundError),
        (grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExistsError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.StateError),
        (grpc.StatusCode.OUT_OF_RANGE, errors.OutOfRangeError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.LimitError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.PermissionDeniedError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.UnauthenticatedError),
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.ABORTED, errors.AbortedError),
        (grpc.StatusCode.INTERNAL, errors.InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.PinfoldError),
    ],
)
async def test_class_reason_and_metadata(
    fake: Fake, fake_client: Client, code: grpc.StatusCode, kind: type[errors.PinfoldError]
) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await refuse(context, code, "no: `x`", reason="SOME_REASON", metadata={"oldest": "7"})

    fake.on("GetInfo", sequence(answer))
    with pytest.raises(errors.PinfoldError) as caught:
        await fake_client.info()
    assert type(caught.value) is kind
    assert caught.value.code is code
    assert caught.value.reason == "SOME_REASON"
    assert caught.value.metadata == {"oldest": "7"}
    assert str(caught.value) == "no: `x`"
    assert len(fake.requests) == 1


async def test_plain_status_has_no_reason(fake: Fake, fake_client: Client) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "two\nlines")

    fake.on("GetInfo", sequence(answer))
    with pytest.raises(errors.NotFoundError, match="two lines") as caught:
        await fake_client.info()
    assert caught.value.reason == ""


async def test_odd_details_are_no_trouble(fake: Fake, fake_client: Client) -> None:
    async def answer(context: grpc.aio.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),))
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    fake.on("GetInfo", sequence(answer))
    with pytest.raises(errors.NotFoundError, match="gone"):
        await fake_client.info()


async def test_deadline_of_the_client(fake: Fake) -> None:
    fake.on("GetInfo", sequence(forever))
    async with Client.connect(f"unix:{fake.socket}", token="", deadline=0.1) as client:
        with pytest.raises(errors.DeadlineError):
            await client.info()


async def test_token_goes_with_every_request(fake: Fake) -> None:
    fake.on("GetInfo", sequence(supervisor_service_pb2.GetInfoResponse()))
    async with Client.connect(f"unix:{fake.socket}", token="secret") as client:
        await client.info()
    assert fake.metadata[0]["authorization"] == "Bearer secret"


async def test_token_is_not_sent_in_the_clear() -> None:
    async with Client.connect("example.com:4000", token="secret") as client:
        with pytest.raises(errors.InvalidRequestError, match="use TLS"):
            await client.info()


async def test_closed_client(fake_client: Client) -> None:
    await fake_client.close()
    with pytest.raises(errors.UnavailableError, match="closed"):
        await fake_client.info()
