"""What an engine process uses: a client, caches, hits and reservations."""

from nexuskv.client.cache import Cache, PageStatus
from nexuskv.client.client import Client, connect
from nexuskv.client.fetching import Fetched, Pushed
from nexuskv.client.hit import Handle, Hit
from nexuskv.client.reservation import Reservation, WritablePage

__all__ = [
    "Cache",
    "Client",
    "Fetched",
    "Handle",
    "Hit",
    "PageStatus",
    "Pushed",
    "Reservation",
    "WritablePage",
    "connect",
]
