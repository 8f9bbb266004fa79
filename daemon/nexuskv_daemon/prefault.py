"""Touching a segment's pages before anybody needs them, while the daemon serves.

Owns the daemon's mapping of a segment for that purpose. The kernel zeroes a tmpfs page when it is first touched; an
engine that meets such pages copies at a tenth of the speed. Done in slices, so that a segment can be dropped meanwhile.
"""

import ctypes
import errno
import logging
import mmap
import os
import threading

log = logging.getLogger(__name__)
MADV_POPULATE_WRITE = 23
"""linux/mman.h since 5.14; prefaults without changing contents, so engines may write meanwhile."""
SLICE = 4 << 20

# Called through ctypes because mmap.madvise holds the interpreter lock for the whole call.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.restype = ctypes.c_int


class Warming:
    """One segment's mapping in the daemon. `warm` runs in a worker thread; the rest may come at any time meanwhile."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._open = True

    def warm(self) -> None:
        """Prefaults the whole segment. A machine that refuses costs speed, not correctness: its space is reserved."""
        for at in range(0, len(self._memory), SLICE):
            with self._lock:
                if not self._open or not self._populate(at):
                    return

    def discard(self) -> None:
        """Gives the memory back to the machine now, though clients may map the object for long."""
        with self._lock:
            self._memory.madvise(mmap.MADV_REMOVE)
            self._open = False

    def close(self) -> None:
        """Unmaps."""
        with self._lock:
            self._open = False
            self._memory.close()

    def _populate(self, at: int) -> bool:
        view = ctypes.c_char.from_buffer(self._memory, at)
        nbytes = min(SLICE, len(self._memory) - at)
        failed = _libc.madvise(ctypes.addressof(view), nbytes, MADV_POPULATE_WRITE)
        if failed:
            code = ctypes.get_errno()
            log.info("segments are not prefaulted here: %s", errno.errorcode.get(code, os.strerror(code)))
        return not failed
