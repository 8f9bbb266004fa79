"""Pinned pools: mapped segments that stay in memory, and that a device knows of, so that it reads them itself.

Owns the two ways of pinning: registration with CUDA through torch, and `mlock`. Knows nothing of pages. torch is
imported when CUDA is asked for and never needed: without it the pool is page-locked, and the answer says so.
"""

import ctypes
import importlib
import os
import resource
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from nexuskv.errors import BadRequest, PinningRefused
from nexuskv.ipc.mapping import MappedSegment, Registrar
from nexuskv.quantity import format_size

DEVICES: Final = ("cpu", "cuda")
_CUDA_FLAGS: Final = 0x01 | 0x08  # cudaHostRegisterPortable | cudaHostRegisterReadOnly: readers map read-only


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """What is pinned now, and what of it is new; `how` is "mlock" or "cudaHostRegister", `reason` says why."""

    device: str
    how: str
    reason: str
    segments: int
    nbytes: int
    new_segments: int
    new_nbytes: int


def pin(segments: Sequence[MappedSegment], device: str) -> Pinned:
    """Registers those that are not registered yet; all of them or, when it raises PinningRefused, none."""
    way = _way(device)
    new = [segment for segment in segments if segment.registered != way.how]
    try:
        for segment in new:
            segment.register(way)
    except BaseException:
        for segment in new:
            segment.unregister()
        raise
    return Pinned(
        device=device,
        how=way.how,
        reason=way.reason,
        segments=len(segments),
        nbytes=sum(segment.memory.nbytes for segment in segments),
        new_segments=len(new),
        new_nbytes=sum(segment.memory.nbytes for segment in new),
    )


class Way(Registrar, Protocol):
    """How memory is pinned, and why so."""

    reason: str


class MemoryLock:
    """`mlock`: the kernel keeps the pages in memory, and a first read of them takes no fault."""

    how = "mlock"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self._libc = ctypes.CDLL(None, use_errno=True)

    def register(self, address: int, nbytes: int) -> None:
        if self._libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(nbytes)):
            error = os.strerror(ctypes.get_errno())
            limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
            allowed = "any amount" if limit == resource.RLIM_INFINITY else format_size(limit)
            raise PinningRefused(
                f"cannot lock {format_size(nbytes)} in memory ({error}), RLIMIT_MEMLOCK allows {allowed}: raise "
                "LimitMEMLOCK= in the engine's systemd unit, or `ulimit -l` where it is started"
            )

    def unregister(self, address: int, nbytes: int) -> None:
        self._libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))


class CudaRegistration:
    """`cudaHostRegister`: copies to and from every CUDA device of this process are done by the device itself."""

    how = "cudaHostRegister"
    reason = "registered with CUDA through torch"

    def __init__(self, cudart: Any) -> None:
        self._cudart = cudart
        self._process = os.getpid()

    def register(self, address: int, nbytes: int) -> None:
        code = int(self._cudart.cudaHostRegister(address, nbytes, _CUDA_FLAGS))
        if code:
            raise PinningRefused(
                f'CUDA refused to register {format_size(nbytes)} (error {code}): pin for the device "cpu" instead'
            )

    def unregister(self, address: int, nbytes: int) -> None:  # CUDA knows the size
        if os.getpid() == self._process:  # a forked child has the mapping, but no CUDA
            self._cudart.cudaHostUnregister(address)


def _way(device: str) -> Way:
    if device == "cpu":
        return MemoryLock("page-locked, as asked")
    if device != "cuda":
        raise BadRequest(f"{device!r} is no device to pin for: use one of {', '.join(DEVICES)}")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return MemoryLock("page-locked only: torch is not installed, so CUDA was not told")
    if not torch.cuda.is_available():
        return MemoryLock("page-locked only: torch finds no CUDA device")
    return CudaRegistration(torch.cuda.cudart())
