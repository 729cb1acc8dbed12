"""docs/settings.md and the settings say the same: every name, every default, the example."""

from __future__ import annotations

import re
import tomllib
from enum import Enum
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

from pinfoldd.config import Config, load

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
TOP = "Top level"


def _models() -> dict[str, type[BaseModel]]:
    """The heading of each section, and the model behind it."""
    found: dict[str, type[BaseModel]] = {TOP: Config}
    for name, field in Config.model_fields.items():
        several = get_origin(field.annotation) is dict
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[f"`[{name}.*]`" if several else f"`[{name}]`"] = kind
    return found


MODELS = _models()


def _rows(heading: str) -> dict[str, str]:
    """The default that stands in the row of each name."""
    _, _, rest = PAGE.partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*)\|", section, re.MULTILINE)
    return {name: cell.strip() for names, cell in rows for name in re.findall(r"`(\w+)`", names)}


def _names(heading: str) -> list[str]:
    """The settings of a section; at the top level those that are no sections."""
    sections = {re.sub(r"\W", "", heading) for heading in MODELS}
    return [name for name in MODELS[heading].model_fields if heading != TOP or name not in sections]


FIELDS = [(heading, name) for heading in MODELS for name in _names(heading)]


@pytest.mark.parametrize(("heading", "name"), FIELDS)
def test_a_setting_is_there_with_its_default(heading: str, name: str) -> None:
    field = MODELS[heading].model_fields[name]
    rows = _rows(heading)
    assert name in rows
    assert (field.alias or name) in rows
    cell = rows[name]
    if (heading, name) == (TOP, "state"):
        assert cell == ""
    elif field.is_required():
        assert cell == "required"
    elif field.default is None:
        assert cell == "none"
    else:
        default = field.default.value if isinstance(field.default, Enum) else field.default
        assert re.fullmatch(r"`[^`]*`", cell), cell
        written = tomllib.loads(f"default = {cell.strip('`')}")["default"]
        assert (type(written), written) == (type(default), default)


@pytest.mark.parametrize("heading", MODELS)
def test_nothing_is_there_that_is_no_setting(heading: str) -> None:
    fields = MODELS[heading].model_fields
    aliases = {field.alias for field in fields.values() if field.alias}
    assert set(_rows(heading)) == {*_names(heading), *aliases}


def test_every_section_has_a_heading() -> None:
    headings = re.findall(r"^## (`\[.*\]`)$", PAGE, re.MULTILINE)
    assert set(headings) == set(MODELS) - {TOP}


def test_the_example_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINFOLD_DURABILITY", "PINFOLD_SHELL", "PINFOLD_TASKS", "PINFOLD_ROLES"):
        monkeypatch.delenv(name, raising=False)
    example = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(example) == 1
    (tmp_path / "pinfold.toml").write_text(example[0])
    config = load(tmp_path)
    assert config.durability == "full"
    assert config.tasks.completion_delivery == "wakeup"
    assert list(config.roles) == ["reviewer"]
