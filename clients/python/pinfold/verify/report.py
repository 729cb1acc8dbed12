"""What a run of the plan has found: checks and notes, by phase and by route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TIMING = "timing"
LEAK = "leak"
MISSED = "missed prompt"
DUPLICATE = "duplicate prompt"
ORDER = "order"

# What a check is about, beside its route: a failed one is listed under this heading too.
KINDS = (TIMING, LEAK, MISSED, DUPLICATE, ORDER)


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. `expected` and `got` are exact."""

    route: str
    name: str
    passed: bool
    expected: str
    got: str
    kind: str = ""
    confirms: str = ""

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"route": self.route, "name": self.name, "passed": self.passed}
        if self.kind:
            plain["kind"] = self.kind
        if not self.passed:
            plain |= {"expected": self.expected, "got": self.got}
        return plain


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling that is no failure. `kind` is one of KINDS, or empty."""

    kind: str
    text: str


@dataclass(slots=True)
class PhaseResult:
    name: str
    section: str
    title: str
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.passed]

    @property
    def passed(self) -> bool:
        return bool(self.checks) and not self.failures

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "section": self.section,
            "title": self.title,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "checks": [check.to_plain() for check in self.checks],
            "notes": [{"kind": note.kind, "text": note.text} for note in self.notes],
        }


# What the report confirms in so many words: each stands for the checks that name it.
CONFIRMATIONS = {
    "cancel-text": (
        "the success output of `cancel` is only `Tool cancellation requested`: an accepted "
        "request, no receipt of the end"
    ),
    "done-or-unknown": "errors tell completed delegates from unknown ids",
    "agent-ids": "`self_agent_id` and `sub_agent_id` are clear, without redundant aliases",
    "placeholder-target": "the placeholder of a delegate names the id that `cancel` wants",
    "slow-duration": "slow cancelled calls and delegates report `duration_seconds`",
    "hidden": "completion prompts are hidden from people by their type",
    "no-leak": "no completion of a cancelled delegate's inner call reached its parent",
    "once": "each result was consumed at most once",
}


@dataclass(slots=True)
class Report:
    supervisor: str
    phases: list[PhaseResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.phases) and all(phase.passed for phase in self.phases)

    @property
    def checks(self) -> list[Check]:
        return [check for phase in self.phases for check in phase.checks]

    @property
    def failures(self) -> list[tuple[PhaseResult, Check]]:
        return [(phase, check) for phase in self.phases for check in phase.failures]

    def routes(self) -> list[tuple[str, str, int, int]]:
        """Section, route, checks, and how many of them failed; in the order of the plan."""
        counts: dict[tuple[str, str], list[int]] = {}
        for phase in self.phases:
            for check in phase.checks:
                count = counts.setdefault((phase.section, check.route), [0, 0])
                count[0] += 1
                count[1] += not check.passed
        return [(section, route, n, bad) for (section, route), (n, bad) in counts.items()]

    def findings(self) -> list[tuple[str, str]]:
        """Kind and text: timing surprises, missed and duplicate prompts, leaks, order."""
        found = [
            (note.kind, f"{phase.name}: {note.text}")
            for phase in self.phases
            for note in phase.notes
            if note.kind
        ]
        found += [
            (check.kind, f"{phase.name}: {check.name}: got {check.got}")
            for phase, check in self.failures
            if check.kind
        ]
        return sorted(found, key=lambda one: KINDS.index(one[0]))

    def remarks(self) -> list[str]:
        """How something was tested, where that needs saying."""
        return [
            f"{phase.name}: {note.text}"
            for phase in self.phases
            for note in phase.notes
            if not note.kind
        ]

    def confirmations(self) -> list[tuple[bool, str]]:
        """Whether each sentence holds, of those that this run has tested."""
        confirmed = []
        for key, sentence in CONFIRMATIONS.items():
            about = [check.passed for check in self.checks if check.confirms == key]
            if about:
                confirmed.append((all(about), sentence))
        return confirmed

    def survivors(self, left: list[str]) -> None:
        """What was left of a supervisor after it was stopped."""
        phase = PhaseResult("survivors", "all", "nothing is left")
        phase.checks.append(
            Check(
                "nothing is left",
                "processes of the supervisor after its stop",
                not left,
                "[]",
                repr(left),
                LEAK,
            )
        )
        self.phases.append(phase)

    def to_plain(self) -> dict[str, Any]:
        return {
            "type": "verify",
            "passed": self.passed,
            "supervisor": self.supervisor,
            "seconds": round(self.seconds, 3),
            "checks": len(self.checks),
            "failed": len(self.failures),
            "phases": [phase.to_plain() for phase in self.phases],
            "routes": [
                {"section": section, "route": route, "checks": count, "failed": bad}
                for section, route, count, bad in self.routes()
            ],
            "findings": [{"kind": kind, "text": text} for kind, text in self.findings()],
            "confirmations": [
                {"holds": holds, "text": text} for holds, text in self.confirmations()
            ],
        }
