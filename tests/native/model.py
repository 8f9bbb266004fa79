"""The hit protocol as an exhaustive model: every interleaving of one evicter and two readers, with store buffers.

Owns a small machine and the protocol written for it; knows nothing of the C code but the names of its steps (R1 to
R5, W1 to W4, P1 to P4 in nexuskv.c). A store waits in its thread's buffer until the memory takes it; a load sees the
own buffer first. TSO (x86) drains a buffer in order; PSO lets stores to different places overtake each other, which
stands for weaker machines, unless a release forbids it. Loads happen in program order, so the acquires are not
checked here; the thread sanitizer looks at those.

One bucket, incarnation 1 LIVE at the start. Its key and its page both hold the number of the incarnation that wrote
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

Registers = tuple[int, ...]

EMPTY, WRITING, LIVE, RETIRING = range(4)
GENERATION, KEY, PAGE, PIN_1, PIN_2, HIGH_1, HIGH_2 = range(7)
SCRIBBLE: Final = -1
BARRIER: Final = -1  # a place that is no place: a release fence that lies in a buffer


def word(incarnation: int, state: int) -> int:
    """A generation word."""
    return incarnation << 2 | state


@dataclass(frozen=True)
class Load:
    register: int
    place: int


@dataclass(frozen=True)
class Store:
    place: int
    value: int
    release: bool = False


@dataclass(frozen=True)
class Fence:
    """Waits until the thread's buffer is empty (seq_cst)."""


@dataclass(frozen=True)
class ReleaseFence:
    """No later store overtakes an earlier one."""


@dataclass(frozen=True)
class Jump:
    target: int
    when: Callable[[Registers], bool]


@dataclass(frozen=True)
class Check:
    holds: Callable[[Registers], bool]
    message: str


Step = Load | Store | Fence | ReleaseFence | Jump | Check
Buffer = tuple[tuple[int, int, bool], ...]


@dataclass(frozen=True)
class Protocol:
    """What may be taken away, to see that the model notices."""

    reader_fence: bool = True
    writer_fence: bool = True
    live_is_release: bool = True
    high_water_before_pin: bool = True
    recheck: bool = True
    revive: bool = False
    """Not taken away but added: a page that is pinned when it is first retired is put back, once."""


def reader(protocol: Protocol, pin: int, high: int) -> list[Step]:
    """Registers: 0 generation at R1, 1 key, 2 generation at R5, 3 page."""
    raise_high: list[Step] = [Store(high, 1)]
    set_pin: list[Step] = [Store(pin, 1, release=True)]
    fence: list[Step] = [Fence()] if protocol.reader_fence else []
    body: list[Step] = [Load(1, KEY)]
    body += raise_high + set_pin + fence if protocol.high_water_before_pin else set_pin + fence + raise_high
    body.append(Load(2, GENERATION))
    ending: list[Step] = [Store(pin, 0, release=True)]
    whole = Check(lambda r: r[3] == r[0] >> 2, "a pinned page was overwritten")
    use: list[Step] = [
        Check(lambda r: r[1] == r[0] >> 2, "the key is of another incarnation"),
        *(Load(3, PAGE), whole, Load(3, PAGE), whole),
    ]
    start: list[Step] = [Load(0, GENERATION)]
    release_at = 2 + len(body) + 1 + len(use)
    changed = Jump(release_at, lambda r: protocol.recheck and r[2] != r[0])
    missed = Jump(release_at + len(ending), lambda r: r[0] & 3 != LIVE)
    return [*start, missed, *body, changed, *use, *ending]


def evicter(protocol: Protocol, rounds: int) -> list[Step]:
    """Retires, waits until nobody pins, writes the next page, publishes it. Registers: 0, 1 pins; 2, 3 high water."""
    program: list[Step] = []
    scan: list[Step] = [Fence()] if protocol.writer_fence else []  # W2
    for number, (high, pin) in enumerate(((HIGH_1, PIN_1), (HIGH_2, PIN_2))):
        scan += [Load(2 + number, high), Load(number, pin)]  # W3
    for incarnation in range(1, rounds + 1):
        retire: list[Step] = [Store(GENERATION, word(incarnation, RETIRING), release=True)]  # W1
        if protocol.revive:
            back = Store(GENERATION, word(incarnation, LIVE), release=True)
            freed = len(program) + 2 * len([*retire, *scan]) + 3
            program += [*retire, *scan, Jump(freed, lambda r: not _pinned(r)), back]
        program += retire
        again = len(program)
        program += [*scan, Jump(again, _pinned)]  # W4
        following = incarnation + 1
        program += [
            Store(GENERATION, word(incarnation, EMPTY), release=True),
            Store(GENERATION, word(following, WRITING)),  # P1
            ReleaseFence(),  # P2
            Store(KEY, following),  # P3
            Store(PAGE, SCRIBBLE),
            Store(PAGE, following),
            Store(GENERATION, word(following, LIVE), release=protocol.live_is_release),  # P4
        ]
    return program


def _pinned(registers: Registers) -> bool:
    first, second, first_high, second_high = registers
    return bool((first and first_high) or (second and second_high))


@dataclass(frozen=True)
class Thread:
    at: int
    registers: Registers
    buffer: Buffer


@dataclass(frozen=True)
class State:
    memory: tuple[int, ...]
    threads: tuple[Thread, ...]


class ViolationError(Exception):
    """A check of the protocol does not hold in a state that can be reached."""


def seen_by(thread: Thread, memory: tuple[int, ...], place: int) -> int:
    """The newest own store that still waits, else what the memory holds."""
    waiting = [value for where, value, _ in thread.buffer if where == place]
    return waiting[-1] if waiting else memory[place]


def execute(step: Step, thread: Thread, memory: tuple[int, ...]) -> Thread | None:
    """The thread after its next step; None while it has to wait."""
    after = thread.at + 1
    match step:
        case Load(register, place):
            registers = list(thread.registers)
            registers[register] = seen_by(thread, memory, place)
            return replace(thread, at=after, registers=tuple(registers))
        case Store(place, value, release):
            return replace(thread, at=after, buffer=(*thread.buffer, (place, value, release)))
        case ReleaseFence():
            buffer = (*thread.buffer, (BARRIER, 0, True)) if thread.buffer else ()
            return replace(thread, at=after, buffer=buffer)
        case Fence():
            return None if thread.buffer else replace(thread, at=after)
        case Jump(target, when):
            return replace(thread, at=target if when(thread.registers) else after)
        case Check(holds, message):
            if not holds(thread.registers):
                raise ViolationError(message)
            return replace(thread, at=after)


def drains(buffer: Buffer, in_order: bool) -> Iterator[tuple[int, int, Buffer]]:
    """Stores that the memory may take now, each with the buffer that is left."""
    for i, (place, value, release) in enumerate(buffer):
        earlier = buffer[:i]
        if i > 0 and (in_order or release or any(where in (place, BARRIER) for where, _, _ in earlier)):
            continue
        left = earlier + buffer[i + 1 :]
        while left and left[0][0] == BARRIER:
            left = left[1:]
        yield place, value, left


def successors(state: State, programs: list[list[Step]], in_order: bool) -> Iterator[State]:
    """Every state one step away. Raises ViolationError."""
    for number, thread in enumerate(state.threads):
        before, behind = state.threads[:number], state.threads[number + 1 :]
        if thread.at < len(programs[number]):
            moved = execute(programs[number][thread.at], thread, state.memory)
            if moved is not None:
                yield State(state.memory, (*before, moved, *behind))
        for place, value, left in drains(thread.buffer, in_order):
            memory = (*state.memory[:place], value, *state.memory[place + 1 :])
            yield State(memory, (*before, replace(thread, buffer=left), *behind))


def explore(protocol: Protocol, *, rounds: int = 1, in_order: bool) -> int:
    """Number of states that can be reached. in_order: TSO, else PSO. Raises ViolationError."""
    programs = [evicter(protocol, rounds), reader(protocol, PIN_1, HIGH_1), reader(protocol, PIN_2, HIGH_2)]
    memory = (word(1, LIVE), 1, 1, 0, 0, 0, 0)
    first = State(memory, tuple(Thread(0, (0, 0, 0, 0), ()) for _ in programs))
    known, waiting = {first}, [first]
    while waiting:
        for state in successors(waiting.pop(), programs, in_order):
            if state not in known:
                known.add(state)
                waiting.append(state)
    return len(known)
