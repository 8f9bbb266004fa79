"""What an engine process uses: a client, caches, hits, reservations and branches."""

from nexuskv.client.append import Append
from nexuskv.client.branch import Branch, drop_all
from nexuskv.client.cache import Cache, PageStatus
from nexuskv.client.client import Client, connect
from nexuskv.client.hit import Handle, Hit
from nexuskv.client.lineage import BranchInfo
from nexuskv.client.reservation import Reservation, WritablePage

__all__ = [
    "Append",
    "Branch",
    "BranchInfo",
    "Cache",
    "Client",
    "Handle",
    "Hit",
    "PageStatus",
    "Reservation",
    "WritablePage",
    "connect",
    "drop_all",
]
