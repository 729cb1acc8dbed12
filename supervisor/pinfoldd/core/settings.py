"""The numbers the core decides with. Read from the settings file by `config`, never changed."""

from __future__ import annotations

from msgspec import Struct, field

from pinfoldd.core.values import Surface


class Role(Struct, frozen=True):
    """What a sub-agent of this role is: its worker's restart policy and its own limits."""

    surface: Surface = Surface.TAU
    max_running: int = 0
    restarts: int = 0  # how often within `restart_window` a dead worker is started again
    restart_window: float = 60.0  # seconds
    restart_delay: float = 0.2  # seconds


class Settings(Struct, frozen=True):
    calls_per_agent: int = 10_000  # live or not yet consumed
    live_groups: int = 10_000
    live_agents: int = 10_000
    agent_depth: int = 8
    pending_prompts: int = 10_000  # of one agent
    delivery_bytes: int = 3 << 20  # of prompts in one delivery: gRPC clients take 4 MiB by default
    waits_per_agent: int = 100_000
    active_tasks: int = 10  # of one agent on the tasks surface
    finished_calls: int = 100_000  # kept in all
    finished_seconds: float = 7 * 86_400.0  # how long a finished call is kept
    sweep_seconds: float = 60.0  # between two looks at what is over these bounds
    wake_on_task_notice: bool = False  # completionDelivery: wakeup
    max_consecutive_wakes: int = 3
    advice_after: int = 3  # input waits timed out in a row
    roles: dict[str, Role] = field(default_factory=dict)
