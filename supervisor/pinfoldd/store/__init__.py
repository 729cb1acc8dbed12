"""What outlives the daemon: the log of events and the snapshots that make starts quick."""

from pinfoldd.store.codec import decode_event, encode_event
from pinfoldd.store.errors import StoreError
from pinfoldd.store.log import Durability, Log, Record, Row
from pinfoldd.store.snapshot import Snapshots
from pinfoldd.store.store import Recovered, Store

__all__ = [
    "Durability",
    "Log",
    "Record",
    "Recovered",
    "Row",
    "Snapshots",
    "Store",
    "StoreError",
    "decode_event",
    "encode_event",
]
