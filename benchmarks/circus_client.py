"""Circus's own client, driven by a line of JSON at a time. Runs in the environment of the peers.

    python circus_client.py ENDPOINT

Answers with the nanoseconds that each request took.
"""

import json
import sys
import time

from circus.client import CircusClient


def main() -> None:
    client = CircusClient(endpoint=sys.argv[1], timeout=30.0)
    print("ready", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        begin = time.monotonic_ns()
        answer = client.send_message(message["command"], **message["properties"])
        took = time.monotonic_ns() - begin
        if answer.get("status") != "ok":
            sys.exit(f"circus: {answer}")
        print(took, flush=True)


if __name__ == "__main__":
    main()
