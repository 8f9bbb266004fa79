"""What an engine process uses: a client, caches and groups, hits and reservations."""

from nexuskv.client.cache import Cache, PageStatus
from nexuskv.client.client import Client, connect
from nexuskv.client.group import Group
from nexuskv.client.group_match import GroupHit
from nexuskv.client.group_reservation import GroupReservation, ReservedBoundary
from nexuskv.client.hit import Handle, Hit
from nexuskv.client.reservation import Reservation, ReservedPage, WritablePage

__all__ = [
    "Cache",
    "Client",
    "Group",
    "GroupHit",
    "GroupReservation",
    "Handle",
    "Hit",
    "PageStatus",
    "Reservation",
    "ReservedBoundary",
    "ReservedPage",
    "WritablePage",
    "connect",
]
