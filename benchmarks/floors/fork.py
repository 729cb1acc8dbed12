"""A process that has everything imported and forks: the quickest start of a Python worker.

    python -m benchmarks.floors.fork ADDRESS

For each line of its input: fork, one RPC to ADDRESS in the child, and a line of nanoseconds
from the fork until the answer was there. No channel is open in the parent.
"""

from __future__ import annotations

import os
import struct
import sys
import time

import grpc

import pinfold.worker.run  # noqa: F401  what a worker would have to import
from pinfold.v1 import supervisor_service_pb2, supervisor_service_pb2_grpc


def first_rpc(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = supervisor_service_pb2_grpc.SupervisorServiceStub(channel)
        stub.GetInfo(supervisor_service_pb2.GetInfoRequest())


def fork_once(address: str) -> int:
    read, write = os.pipe()
    begin = time.monotonic_ns()
    pid = os.fork()
    if pid == 0:
        try:
            first_rpc(address)
            os.write(write, struct.pack("<q", time.monotonic_ns()))
        finally:
            os._exit(0)
    os.close(write)
    answer = os.read(read, 8)
    os.close(read)
    os.waitpid(pid, 0)
    return int(struct.unpack("<q", answer)[0]) - begin


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print(*(fork_once(sys.argv[1]) for _ in range(int(line))), flush=True)


if __name__ == "__main__":
    main()
