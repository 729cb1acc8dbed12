"""What the keeper's warm process calls: the function that PINFOLD_WORKER names."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from pinfold.worker.kit import run


def main() -> None:
    name = os.environ.get("PINFOLD_WORKER", "")
    module, _, function = name.partition(":")
    directory = os.getcwd()
    if directory not in sys.path:
        # A role's own module is found as it is by `python -m`: from where the agent works.
        sys.path.insert(0, directory)
    try:
        work = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"pinfold.worker: cannot load {name!r}: {error}")
    run(work)


if __name__ == "__main__":
    main()
