"""A process that makes the next snapshot of a state directory, from the last one and the log.

    python -m pinfoldd.store.snapshotter DIRECTORY

Encoding a state of 100,000 calls takes more than 100 ms, and a consistent copy of it, for a
thread to encode, is not free either (40 MB, and 40 to 130 ms with the garbage collector's
share). So a daemon's state is left alone: this process loads the last snapshot, applies the
log that came after it, and writes the next. That holds up the daemon's loop for nothing, and
shows each time that the log can be replayed.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from pinfoldd.core.apply import apply
from pinfoldd.core.reasons import IllegalTransition
from pinfoldd.store.errors import StoreError
from pinfoldd.store.store import Store

_NICENESS = 10


def main(arguments: list[str]) -> int:
    """Exit status 1, and the reason on stderr, if there is no new snapshot."""
    (directory,) = arguments
    os.nice(_NICENESS)
    gc.disable()  # it lives for a second
    try:
        store = Store.open(Path(directory))
        state, events = store.recover()
        for stamp, event in events:
            apply(state, event, stamp)
        store.snapshots.save(state)
        store.close()
    except (StoreError, IllegalTransition) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
