"""Orders to the keeper that cannot leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinfoldd.core import commands as c
from pinfoldd.groups import Groups
from pinfoldd.keeper import messages as m


class FullLink:
    """Refuses every order, as one that is over the bound of a frame is refused."""

    def send(self, order: m.Order) -> None:
        if not isinstance(order, m.Base | m.Acknowledge):
            raise m.LinkError("Spawn of 70000000 bytes is over 67108864")

    def flush(self) -> None: ...


@pytest.fixture
async def posted() -> tuple[Groups, list[c.Command]]:
    commands: list[c.Command] = []
    loop = SimpleNamespace(
        state=SimpleNamespace(groups={}), post=lambda command, then: commands.append(command)
    )
    groups = Groups({}, cast(Any, None), cast(Any, None))
    groups.bind(cast(Any, loop))
    groups.attach(FullLink())
    return groups, commands


async def test_a_spawn_that_cannot_leave_has_failed(
    posted: tuple[Groups, list[c.Command]],
) -> None:
    groups, commands = posted
    groups.send(m.Spawn(group=7))
    (failed,) = commands
    assert isinstance(failed, c.GroupFailed)
    assert failed.group == 7
    assert failed.reason.endswith("Spawn of 70000000 bytes is over 67108864")


async def test_any_other_order_that_cannot_leave_is_a_mistake(
    posted: tuple[Groups, list[c.Command]],
) -> None:
    groups, commands = posted
    with pytest.raises(m.LinkError):
        groups.send(m.Stop(7))
    assert commands == []
