"""The daemon with one thing broken on purpose: `launch.py BREAK [DAEMON OPTION]...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from breaks import BREAKS

from pinfoldd.daemon import main

if __name__ == "__main__":
    name = sys.argv.pop(1)
    BREAKS[name]()
    main()
