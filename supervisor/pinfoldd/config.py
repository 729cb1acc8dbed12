"""The settings file, the environment and the command line, checked when they are read.

Order of precedence: command line, `PINFOLD_*` environment, `<state>/pinfold.toml` (or
`--config`), defaults. What is wrong stops the start with a line that says which key.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pinfoldd.core.settings import Role as CoreRole
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Surface

NonNegative = Annotated[float, Field(ge=0)]


def _whole(value: Any) -> Any:
    """A whole number as it is written: `true` and `2.0` are none. (Text: the environment's.)"""
    if isinstance(value, bool | float):
        raise ValueError("a whole number, without a decimal point")
    return value


Whole = Annotated[int, BeforeValidator(_whole), Field(ge=1)]


class ConfigError(Exception):
    """Settings that cannot be used: one line for each fault, for people."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Role(_Table):
    """How the worker of a sub-agent is run."""

    worker: Literal["python", "command", "exec", "scripted"]
    # python: "module:function"; command and exec: the program and its arguments.
    entry: str = ""
    command: list[str] = []
    env: dict[str, str] = {}
    surface: Surface = Surface.TAU
    max_running_calls: Annotated[int, Field(ge=0)] = 0
    restarts: Annotated[int, Field(ge=0)] = 0
    restart_window: PositiveFloat = 60.0
    restart_delay: NonNegative = 0.2

    @model_validator(mode="after")
    def _complete(self) -> Role:
        if self.worker == "python" and ":" not in self.entry:
            raise ValueError('a python worker needs entry = "module:function"')
        if self.worker in ("command", "exec") and not self.command:
            raise ValueError(f'worker "{self.worker}" needs command = ["program", ...]')
        return self


class Shell(_Table):
    program: str = ""
    foreground_budget: PositiveFloat = 2.0  # seconds
    timeout: NonNegative | None = None  # seconds of running time; none: no limit
    grace: NonNegative = 2.0  # seconds between TERM and KILL
    drain: PositiveFloat = 0.05  # seconds for output after the exit, while a pipe is held
    umask: str = "022"
    output_bytes: Annotated[int, Field(ge=4096)] = 64 << 20
    script_bytes: Annotated[int, Field(ge=1024)] = 8 << 20
    env_value_bytes: Annotated[int, Field(ge=1024, le=131_071)] = 131_071

    @field_validator("umask")
    @classmethod
    def _octal(cls, value: str) -> str:
        if not value or any(digit not in "01234567" for digit in value) or int(value, 8) > 0o777:
            raise ValueError("an octal number of at most 777")
        return value


class Waits(_Table):
    min_input_minutes: PositiveInt = 5
    max_input_minutes: PositiveInt = 1440

    @model_validator(mode="after")
    def _ordered(self) -> Waits:
        if self.min_input_minutes > self.max_input_minutes:
            raise ValueError(
                f"min_input_minutes ({self.min_input_minutes}) is over "
                f"max_input_minutes ({self.max_input_minutes})"
            )
        return self


class Tasks(_Table):
    wait_timeout_ms: Whole = Field(default=30_000, alias="waitTimeoutMs")
    max_wait_timeout_ms: Whole = Field(default=600_000, alias="maxWaitTimeoutMs")
    completion_delivery: Literal["quiet", "wakeup"] = Field(
        default="quiet", alias="completionDelivery"
    )
    max_consecutive_wakes: Whole = Field(default=3, alias="maxConsecutiveWakes")
    active: Whole = 10

    @model_validator(mode="after")
    def _ordered(self) -> Tasks:
        if self.wait_timeout_ms > self.max_wait_timeout_ms:
            raise ValueError(
                f"waitTimeoutMs ({self.wait_timeout_ms}) is over "
                f"maxWaitTimeoutMs ({self.max_wait_timeout_ms})"
            )
        return self


class Limits(_Table):
    calls_per_agent: PositiveInt = 10_000
    live_groups: PositiveInt = 10_000
    agents: PositiveInt = 10_000
    agent_depth: PositiveInt = 8
    pending_prompts: PositiveInt = 10_000
    waits_per_agent: PositiveInt = 100_000
    message_bytes: PositiveInt = 1 << 20
    prompt_bytes: PositiveInt = 1 << 20  # so that any client can receive the event about it


class Retention(_Table):
    finished_calls: PositiveInt = 100_000
    finished_days: PositiveFloat = 7.0
    events: PositiveInt = 1_000_000  # of the log, for watchers that resume
    sweep_seconds: PositiveFloat = 60.0


class Tls(_Table):
    certificate: Path
    key: Path
    client_ca: Path | None = None  # asks clients for certificates of this authority


class Config(BaseSettings):
    """All settings. `load` reads them."""

    model_config = SettingsConfigDict(
        env_prefix="PINFOLD_", env_nested_delimiter="__", extra="ignore", frozen=True
    )

    state: Path
    address: str = ""  # host:port of a TCP listener besides the socket; needs [tls]
    durability: Literal["process", "full"] = "process"
    linger: PositiveFloat = 3600.0
    require_token: bool = False  # also on the unix socket
    cgroup: str = ""  # a cgroup v2 directory that the keeper may make groups in
    default_role: str = "scripted"
    shell: Shell = Shell()
    waits: Waits = Waits()
    tasks: Tasks = Tasks()
    limits: Limits = Limits()
    retention: Retention = Retention()
    tls: Tls | None = None
    roles: dict[str, Role] = {}

    @model_validator(mode="after")
    def _has_its_default(self) -> Config:
        if self.default_role not in self.all_roles():
            known = ", ".join(sorted(self.all_roles()))
            raise ValueError(f"default_role: none is {self.default_role} (there are: {known})")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = cls.model_config.get("toml_file")
        sources: list[PydanticBaseSettingsSource] = [init_settings, env_settings]
        if file:
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=file))
        return tuple(sources)

    @property
    def socket(self) -> Path:
        return self.state / "pinfold.sock"

    def shell_program(self) -> str:
        return self.shell.program or shutil.which("bash", path="/bin:/usr/bin") or "/bin/sh"

    def all_roles(self) -> dict[str, Role]:
        """The configured roles, and the built-in one that needs no model."""
        return {"scripted": Role(worker="scripted"), **self.roles}

    def core(self) -> Settings:
        """The numbers that decisions are made with."""
        return Settings(
            calls_per_agent=self.limits.calls_per_agent,
            live_groups=self.limits.live_groups,
            live_agents=self.limits.agents,
            agent_depth=self.limits.agent_depth,
            pending_prompts=self.limits.pending_prompts,
            waits_per_agent=self.limits.waits_per_agent,
            active_tasks=self.tasks.active,
            finished_calls=self.retention.finished_calls,
            finished_seconds=self.retention.finished_days * 86_400,
            sweep_seconds=self.retention.sweep_seconds,
            wake_on_task_notice=self.tasks.completion_delivery == "wakeup",
            max_consecutive_wakes=self.tasks.max_consecutive_wakes,
            roles={
                name: CoreRole(
                    surface=role.surface,
                    max_running=role.max_running_calls,
                    restarts=role.restarts,
                    restart_window=role.restart_window,
                    restart_delay=role.restart_delay,
                )
                for name, role in self.all_roles().items()
            },
        )


def default_state() -> Path:
    return Path(os.environ.get("PINFOLD_STATE") or platformdirs.user_state_dir("pinfold"))


def load(state: Path | None, file: Path | None = None, **overrides: Any) -> Config:
    """Read the settings. Raises ConfigError."""
    directory = (state or default_state()).absolute()
    toml = file or directory / "pinfold.toml"
    if file is not None and not file.is_file():
        raise ConfigError(f"settings file does not exist: {file}")

    class FromFile(Config):
        model_config = SettingsConfigDict(
            env_prefix="PINFOLD_",
            env_nested_delimiter="__",
            extra="forbid" if toml.is_file() else "ignore",
            frozen=True,
            toml_file=toml if toml.is_file() else None,
        )

    given = {key: value for key, value in overrides.items() if value is not None}
    # The client's variable of the same name says where to connect, not where to listen.
    address = os.environ.pop("PINFOLD_ADDRESS", None)
    try:
        return FromFile(state=directory, **given)
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in fault['loc']) or 'settings'}: "
            f"{fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from error
    except ValueError as error:
        raise ConfigError(f"{toml}: {error}") from error
    finally:
        if address is not None:
            os.environ["PINFOLD_ADDRESS"] = address
