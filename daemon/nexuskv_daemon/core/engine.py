"""The daemon's behaviour: a request in, effects out.

Owns sessions, the order of a session's life (hello first), and requests that wait for a segment. What a request does is
in the `requests.py` of its subject, what is stored in the store. No I/O and no clock: `now` is handed in, in seconds of
a monotonic clock.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence

from nexuskv.contract import MAX_PAGE_BYTES
from nexuskv.errors import ArenaFull, NexusError
from nexuskv.protocol.branches import Append
from nexuskv.protocol.codec import BadMessage
from nexuskv.protocol.messages import (
    MAX_DESCRIPTORS,
    Commit,
    Dropped,
    Hello,
    Message,
    Refused,
    Reserve,
    ReserveGroup,
    Segment,
    Segments,
)
from nexuskv_daemon.core import dispatch
from nexuskv_daemon.core.effects import Close, DropSegment, Effect, MakeSegment, Send, Stop
from nexuskv_daemon.core.groups import GroupReservation
from nexuskv_daemon.core.requests import Answer, Host, Identity, Parked
from nexuskv_daemon.core.reservation import Reservation
from nexuskv_daemon.core.session import Session
from nexuskv_daemon.core.store import Store


class Engine:
    """All sessions over one store."""

    def __init__(self, store: Store, identity: Identity, max_page_bytes: int = MAX_PAGE_BYTES) -> None:
        """No descriptor may have a page of more than `max_page_bytes`."""
        self._host = Host(store, identity, max_page_bytes)
        self._unfinished: dict[int, Sequence[Reservation | GroupReservation]] = {}

    def connect(self, number: int, tenant: str, *, operator: bool) -> None:
        """A connection came; `tenant` follows from the peer's credentials."""
        self._host.sessions[number] = Session(number, tenant, operator)

    def disconnect(self, number: int) -> None:
        """A connection ended, in whatever way: its pins go, and its branches but those that are published.

        Its uncommitted slots come back when it is `abandoned`: a client that only lost its connection may be in the
        middle of writing them.
        """
        session = self._host.sessions.pop(number)
        parked = self._host.parked
        parked[:] = [each for each in parked if each.session is not session]
        self._unfinished[number] = session.end()
        for branch, times in session.branches.items():
            self._host.store.branches.release(branch, times)
        if session.attached:
            self._host.store.publication(session.tenant).detach(number)
        else:
            self.abandoned((number,))

    def inherit(self, writing: Mapping[int, Sequence[Reservation]], alive: Collection[int]) -> None:
        """What sessions of an earlier daemon were writing; the clients of those `alive` may still be about it."""
        self._unfinished.update(writing)
        self.abandoned(writing.keys() - set(alive))

    def abandoned(self, sessions: Collection[int]) -> None:
        """Clients of sessions without a connection are gone, or let go of their pages."""
        for number in sessions:
            for reservation in self._unfinished.pop(number, ()):
                reservation.abort()

    def handle(self, number: int, request: Message, now: float) -> list[Effect]:
        """Performs one request of a session."""
        session = self._host.sessions[number]
        if not session.greeted and type(request) is not Hello:
            return self.reject(
                number, BadMessage("the first message of a session is a hello", request_id=request.id)
            )
        return self._perform(session, request, now)

    def commit(self, number: int, commits: list[Commit], now: float) -> list[Effect]:
        """Performs commits that want no reply, in one step where they are of one reservation: they come in runs."""
        first = commits[0]
        session = self._host.sessions[number]
        if session.greeted and all(
            each.reservation == first.reservation and not each.rest for each in commits
        ):
            places = [place for each in commits for place in each.pages]
            with contextlib.suppress(NexusError):  # one of them is refused: which, shows one by one
                session.reservation(first.reservation).commit(places, rest=False)
                return self._memory_effects()
        return [effect for each in commits for effect in self.handle(number, each, now)]

    def reject(self, number: int, error: BadMessage) -> list[Effect]:
        """Refuses what was no request; ends the session when its framing cannot be trusted."""
        refusal: list[Effect] = [Send(number, Refused(error.id, error.code, str(error)))]
        return [*refusal, Close(number)] if error.fatal else refusal

    def segment_made(self, segment: int, now: float) -> list[Effect]:
        """A planned segment is there: what waited for it goes on."""
        try:
            self._host.store.memory.made(segment)
        except ArenaFull as error:
            record = self._host.store.memory.failed(segment, str(error), now)
            return [DropSegment(record), *self._resume(now)]
        return self._resume(now)

    def segment_failed(self, segment: int, reason: str, now: float) -> list[Effect]:
        """A planned segment could not be made: what waited makes do with eviction, or is refused."""
        self._host.store.memory.failed(segment, reason, now)
        return self._resume(now)

    def _resume(self, now: float) -> list[Effect]:
        """What waited goes on, first come first served.

        Two that want more than there is would else take each other's new segment away for ever.
        """
        effects: list[Effect] = []
        waiting, parked = list(self._host.parked), self._host.parked
        parked.clear()
        for each in waiting:
            if parked:
                parked.append(each)
            else:
                effects += self._perform(each.session, each.request, now)
        return effects

    def _perform(self, session: Session, request: Message, now: float) -> list[Effect]:
        try:
            answer = dispatch.TABLE[type(request)](self._host, session, request, now)
        except NexusError as error:
            numbers: dict[str, int] = getattr(error, "numbers", {})
            answer = Answer(Refused(request.id, error.code, str(error), numbers))
        effects = self._memory_effects()
        if answer is None:
            assert isinstance(request, Reserve | ReserveGroup | Append)
            self._host.parked.append(Parked(session, request))
            return effects
        if session.gone or answer.segments:
            effects += _beforehand(session, answer.segments)
        if answer.reply.id:
            effects.append(Send(session.number, answer.reply))
        if answer.abroad is not None:
            effects.append(answer.abroad)
        if answer.last:
            effects.append(Close(session.number))
        if answer.stop:
            effects.append(Stop())
        return effects

    def _memory_effects(self) -> list[Effect]:
        room = self._host.store.room
        if not room.dropped and not room.planned:
            return []
        for record in room.dropped:
            for session in self._host.sessions.values():
                session.forget(record.number)
        effects: list[Effect] = [DropSegment(record) for record in room.dropped]
        effects += [MakeSegment(record) for record in room.planned]
        room.dropped.clear()
        room.planned.clear()
        return effects


def _beforehand(session: Session, segments: list[Segment]) -> list[Effect]:
    """What a client must know before it reads a reply: segments that are gone, and those that it names."""
    effects: list[Effect] = []
    if session.gone:
        effects.append(Send(session.number, Dropped(0, session.gone)))
        session.gone = []
    return effects + [Send(session.number, Segments(0, chunk)) for chunk in _chunks(segments)]


def _chunks(segments: list[Segment]) -> list[list[Segment]]:
    return [segments[at : at + MAX_DESCRIPTORS] for at in range(0, len(segments), MAX_DESCRIPTORS)]
