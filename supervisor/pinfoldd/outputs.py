"""The output of calls, read from the keeper's spools. Reading moves nobody's cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from pinfoldd.core.model import Call
from pinfoldd.core.values import Extent
from pinfoldd.groups import Groups
from pinfoldd.keeper.spool import Chunk, SpoolReader, paths
from pinfoldd.render.shell_output import ranges

PIECE = 256 * 1024


class Standing(NamedTuple):
    """How far a call's output has come, and whether more can follow."""

    extent: Extent
    closed: bool


class Outputs:
    """All spools of one state directory."""

    def __init__(self, directory: str, groups: Groups) -> None:
        self._directory = directory
        self._groups = groups

    def reader(self, call: Call) -> SpoolReader:
        return SpoolReader(*paths(self._directory, call.group))

    def standing(self, call: Call) -> Standing:
        output = self._groups.outputs.get(call.group)
        if output is not None and output.extent.size >= call.output.size:
            return Standing(output.extent, output.closed or (not call.live and call.closed))
        return Standing(call.output, not call.live and (call.closed or not call.group_live))

    def shown(self, call: Call) -> list[Chunk]:
        """What the text of an ended call is made of: both ends of a long output."""
        result = call.result
        if result is None or not call.group or not result.output.size:
            return []
        with self.reader(call) as reader:
            chunks: list[Chunk] = []
            for start, stop in ranges(result.output):
                chunks += _all(reader, start, stop)
            return chunks

    def between(self, call: Call, start: int, limit: int) -> list[Chunk]:
        """What there is from an offset on, up to `limit` bytes."""
        end = self.standing(call).extent.size
        if not call.group or start >= end:
            return []
        with self.reader(call) as reader:
            chunks: list[Chunk] = []
            while start < end and limit > 0:
                some = reader.read(start, limit, end)
                if not some:
                    break
                chunks += some
                limit -= sum(len(chunk.data) for chunk in some)
                start = some[-1].end
            return chunks

    async def follow(
        self, call: Call, start: int, *, follow: bool, until_end: bool
    ) -> AsyncIterator[Chunk]:
        """Chunks from an offset on. With `follow`: until the streams are at their end, or
        (`until_end`) the call is."""
        offset = start
        if follow:
            await self._groups.assigned(call)
        with self.reader(call) as reader:
            while True:
                standing = self.standing(call)
                over = standing.closed or (until_end and not call.live)
                # Asked for before the first await, so that no growth is slept through.
                more = self._groups.more(call.group) if follow and not over else None
                end = standing.extent.size
                while offset < end:
                    chunks = reader.read(offset, PIECE, end)
                    if not chunks:
                        break
                    for chunk in chunks:
                        yield chunk
                    offset = chunks[-1].end
                if more is None:
                    return
                try:
                    await more
                finally:
                    more.cancel()


def _all(reader: SpoolReader, start: int, stop: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    while start < stop:
        some = reader.read(start, stop - start, stop)
        if not some:
            break
        chunks += some
        start = some[-1].end
    return chunks
