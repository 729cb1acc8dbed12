from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_driver import LANGUAGES, Runs, required


@pytest.fixture(scope="session")
def runs() -> Iterator[Runs]:
    found = Runs()
    yield found
    found.close()


@pytest.fixture
def language(request: pytest.FixtureRequest) -> str:
    """A language whose tools are there; otherwise says plainly that it was not run."""
    name: str = request.param
    missing = LANGUAGES[name].missing()
    if missing:
        message = f"{name} was not run: no {', '.join(missing)} in PATH"
        if name in required():
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return name
