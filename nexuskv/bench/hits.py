"""Whether a hit copies: where the arrays of hit pages lie, as the kernel's map of this process tells.

Owns the argument. Every array that a hit gives out, of whole pages and of single tensors, must lie in a shared mapping
of one of the daemon's segments; each byte of one that does not would be a copy.
"""

import nexuskv
from nexuskv.bench.figures import Readings
from nexuskv.bench.setting import KIB, MIB, MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell
from nexuskv.harness.residence import Witness, private_bytes
from nexuskv.quantity import format_size

PAGE_BYTES = 64 * KIB


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds hit_copies, and a note of what holding all pages costs in private memory."""
    tell("hits")
    count = effort.pick(256 * MIB, 8 * MIB) // PAGE_BYTES
    kind = descriptor(PAGE_BYTES)
    keys = random_keys(count)
    with (
        daemon_for(count, PAGE_BYTES) as daemon,
        nexuskv.connect(daemon.socket) as writer,
        nexuskv.connect(daemon.socket) as reader,
    ):
        with writer.open(kind, model=MODEL).reserve(keys) as pages:
            for page in pages:
                page.buffer[...] = page.position % 256
        cache = reader.open(kind, model=MODEL)
        before = private_bytes()
        with cache.match(keys) as hit:
            arrays = [array for page in hit for array in (page.buffer, page["key"], page["value"])]
            grown = private_bytes() - before
            witness = Witness(daemon.instance)
            readings.add("hit_copies", None, sum(a.nbytes for a in arrays if not witness.in_place(a)))
    readings.notes.append(
        f"hit_copies: while a hit of {format_size(count * PAGE_BYTES)} was open, with {len(arrays):,} arrays on its"
        f" pages, the reader's private memory grew by {format_size(grown)}, or {grown // len(arrays)} bytes an array."
    )
