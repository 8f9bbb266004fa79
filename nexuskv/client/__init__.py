"""What an engine process uses: a client, caches and groups, hits, reservations and branches."""

from nexuskv.client.append import Append
from nexuskv.client.block_hit import BlockHit
from nexuskv.client.branch import Branch, drop_all
from nexuskv.client.cache import Cache, PageStatus
from nexuskv.client.client import Client, connect
from nexuskv.client.fetching import Fetched, Pushed
from nexuskv.client.grant import WritablePage
from nexuskv.client.group import Group
from nexuskv.client.group_match import GroupHit
from nexuskv.client.group_reservation import GroupReservation, ReservedBoundary
from nexuskv.client.hit import Handle, Hit
from nexuskv.client.lineage import BranchInfo
from nexuskv.client.reservation import Reservation, ReservedPage

__all__ = [
    "Append",
    "BlockHit",
    "Branch",
    "BranchInfo",
    "Cache",
    "Client",
    "Fetched",
    "Group",
    "GroupHit",
    "GroupReservation",
    "Handle",
    "Hit",
    "PageStatus",
    "Pushed",
    "Reservation",
    "ReservedBoundary",
    "ReservedPage",
    "WritablePage",
    "connect",
    "drop_all",
]
