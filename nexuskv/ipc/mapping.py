"""A segment mapped into this process, and its pages as numpy arrays.

Owns the mapping of one file descriptor. A page's tensor is a slice of one array over the whole segment, so reading a
page copies nothing and makes no system call. The mapping lives as long as any array on it: numpy holds the mmap.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nexuskv.contract import PageLayout
from nexuskv.errors import BadRequest, RemoteError

Array = npt.NDArray[np.generic]


class Registrar(Protocol):
    """What makes memory known to somebody who wants it to stay where it is: the kernel, or a device; `how` names it."""

    how: str

    def register(self, address: int, nbytes: int) -> None: ...

    def unregister(self, address: int, nbytes: int) -> None: ...


class MappedSegment:
    """All slots of one segment, read-only or writable."""

    def __init__(
        self, descriptor: int, layout: PageLayout, slots: int, slot_bytes: int, *, writable: bool
    ) -> None:
        """Maps `slots * slot_bytes` bytes of the file `descriptor` and closes it, also when that fails.

        Raises RemoteError when the object is smaller than the daemon said: reading past its end would be a SIGBUS.
        """
        try:
            if (there := os.fstat(descriptor).st_size) < slots * slot_bytes or slot_bytes < layout.nbytes:
                raise RemoteError(
                    f"segment of {there} bytes, too small for {slots} slots of {slot_bytes}: not mapped"
                )
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            memory = mmap.mmap(descriptor, slots * slot_bytes, access=access)
        finally:
            os.close(descriptor)
        self.slot_bytes = slot_bytes
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
        """The whole mapping."""
        self._mmap = memory
        self._how = ""
        self._registration: weakref.finalize[[int, int], mmap.mmap] | None = None
        self.pages: npt.NDArray[np.uint8] = np.ndarray(
            (slots, layout.nbytes), np.uint8, memory, strides=(slot_bytes, 1)
        )
        """All bytes of the page in each slot, uint8[slots, page_bytes]."""
        self._tensors = {
            place.name: np.ndarray(
                (slots, *place.shape), place.dtype, memory, place.offset, (slot_bytes, *place.strides)
            )
            for place in layout.tensors
        }

    @property
    def registered(self) -> str:
        """How it is registered now; empty if it is not."""
        return self._how if self._registration is not None and self._registration.alive else ""

    def register(self, registrar: Registrar) -> None:
        """Registers the mapping, until `unregister` or until it is unmapped; an earlier registration ends.

        Raises what the registrar does.
        """
        self.unregister()
        address, nbytes = self.memory.__array_interface__["data"][0], self.memory.nbytes
        registrar.register(address, nbytes)
        # The mmap unmaps when it is freed, and what refers to it weakly is told before that.
        self._registration = weakref.finalize(self._mmap, registrar.unregister, address, nbytes)
        self._how = registrar.how

    def unregister(self) -> None:
        """Ends the registration, if there is one."""
        if self._registration is not None:
            self._registration()

    def tensor(self, name: str, slot: int) -> Array:
        """The tensor `name` of the page in `slot`; a view. Raises BadRequest."""
        try:
            tensor: Array = self._tensors[name][slot]
        except KeyError:
            raise BadRequest(f"a page has no tensor {name!r}: it has {', '.join(self._tensors)}") from None
        return tensor
