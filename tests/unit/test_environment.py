"""What calls inherit of the daemon's environment."""

from __future__ import annotations

from pinfoldd.supervisor import inherited


def test_ours_is_kept_from_calls_and_nothing_else_is() -> None:
    ours = {"PINFOLD_TOKEN": "t", "GRPC_VERBOSITY": "debug", "BASH_ENV": "/x", "ENV": "/y"}
    theirs = {"ENVIRONMENT": "production", "ENV_FILE": "z", "PATH": "/bin", "PYTHONPATH": "/p"}
    assert inherited({**ours, **theirs}) == theirs
