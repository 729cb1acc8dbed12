"""The daemon with one thing broken on purpose: `launch.py BREAK [DAEMON OPTION]...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# As the daemon does before it imports gRPC, which the breaks import for it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
sys.path.insert(0, str(Path(__file__).parent))

from breaks import BREAKS

from pinfoldd.daemon import main

if __name__ == "__main__":
    name = sys.argv.pop(1)
    BREAKS[name]()
    main()
