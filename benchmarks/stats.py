"""Samples, rows of the table, and goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median as middle


@dataclass(frozen=True, slots=True)
class Stats:
    """What is told of many samples. Seconds, unless the row has another unit."""

    n: int
    min: float
    median: float
    p99: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Stats:
        if not samples:
            raise ValueError("no samples")
        ordered = sorted(samples)
        return cls(len(ordered), ordered[0], middle(ordered), quantile(ordered, 0.99))

    @classmethod
    def one(cls, value: float) -> Stats:
        return cls(1, value, value, value)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Of sorted samples, between the two nearest."""
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def add(*parts: Sequence[float]) -> list[float]:
    """A composite floor: the sums of samples that were taken side by side."""
    return [sum(samples) for samples in zip(*parts, strict=False)]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the ratio to the floor: at most, or at least (`reach`)."""

    ratio: float
    p99: float | None = None
    reach: bool = False

    def met(self, ratio: float | None, p99: float | None) -> bool | None:
        if ratio is None:
            return None
        if self.reach:
            return ratio >= self.ratio
        return ratio <= self.ratio and (self.p99 is None or p99 is None or p99 <= self.p99)

    def __str__(self) -> str:
        sign = "≥" if self.reach else "≤"
        return f"{sign} {self.ratio:g}" + (f" / {self.p99:g}" if self.p99 is not None else "")


@dataclass(slots=True)
class Row:
    """One line of the table.

    `client` is who made the load ("go", "python"), or empty where nobody's speed is in it.
    """

    question: str
    what: str
    value: Stats
    client: str = ""
    floor: Stats | None = None
    goal: Goal | None = None
    unit: str = "s"
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Median to median."""
        if self.floor is None or not self.floor.median:
            return None
        return self.value.median / self.floor.median

    @property
    def ratio_p99(self) -> float | None:
        """p99 to p99, where there are enough samples for one."""
        if self.floor is None or not self.floor.p99 or min(self.value.n, self.floor.n) < 100:
            return None
        return self.value.p99 / self.floor.p99

    @property
    def met(self) -> bool | None:
        """None: there is no goal."""
        return self.goal.met(self.ratio, self.ratio_p99) if self.goal is not None else None


def timed(
    question: str,
    what: str,
    value: Sequence[float],
    floor: Sequence[float] = (),
    *,
    client: str = "",
    goal: Goal | None = None,
    note: str = "",
) -> Row:
    """A row of latencies, which keeps its samples for the plots."""
    samples = {"value": list(value)}
    if floor:
        samples["floor"] = list(floor)
    return Row(
        question,
        what,
        Stats.of(value),
        client=client,
        floor=Stats.of(floor) if floor else None,
        goal=goal,
        note=note,
        samples=samples,
    )
