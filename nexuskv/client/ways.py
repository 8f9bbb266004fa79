"""The ways to a descriptor's pages: from shared memory, or by asking the daemon.

Owns which of the two a session has, and how a search goes on after the daemon went away under it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from nexuskv import contract
from nexuskv.client.asked import AskedWay
from nexuskv.client.session import Session
from nexuskv.client.shared import SharedWay
from nexuskv.errors import Disconnected
from nexuskv.native import Moved

Way = SharedWay | AskedWay


class OfSession(Protocol):
    """A way of a cache or a group, through one session."""

    session: Session


W = TypeVar("W", bound=OfSession)
T = TypeVar("T")


def way_to(session: Session, descriptor: contract.Descriptor) -> Way:
    """The way to a descriptor's pages through a session. Raises DescriptorConflict, Disconnected."""
    session.arena(descriptor)  # registers it, which is what attaches the session to the shared index
    return SharedWay(session, descriptor) if session.shared else AskedWay(session, descriptor)


def search(way: W, choose: Callable[[], W], find: Callable[[W], T]) -> T:
    """What `find` answers, through `way` or else through the way that is best by then.

    Raises what `find` does; Disconnected only where there is no shared index to read without the daemon.
    """
    try:
        return find(way)
    except Moved:  # this daemon's successor started afresh
        way.session.close()
    except Disconnected:  # it was asked, and is gone or was restarted
        pass
    return search_again(choose, find)


def search_again(choose: Callable[[], W], find: Callable[[W], T]) -> T:
    """As `search`, after a way that turned out to be of no more use."""
    way = choose()
    try:
        return find(way)
    except Moved:
        way.session.close()
        return find(choose())
    except Disconnected:  # it is gone again: of a session that ended, what is not mapped is a miss
        return find(way)
