"""Hosts of their own on one machine: network namespaces, joined by veth pairs and a bridge, or by a wire that fails.

Owns the namespaces and devices, all gone at the end; the machine's own network is not touched. Needs root.
"""

import contextlib
import fcntl
import json
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _able() -> bool:
    if os.geteuid() or shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        return False
    name = f"nexuskv-{uuid.uuid4().hex[:8]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    _ip("netns", "del", name)
    return True


NEEDED = pytest.mark.skipif(not _able(), reason="needs root, iproute2 and network namespaces")


class Network:
    """Three hosts, "a", "b" and "c", at 10.77.0.1 to 3, each on a port of one bridge."""

    def __init__(self) -> None:
        self._name = f"nx{uuid.uuid4().hex[:6]}"
        self._hub = self.namespace("hub")

    def namespace(self, host: str) -> str:
        """Name of a host's network namespace."""
        return f"{self._name}-{host}"

    def under(self, host: str) -> list[str]:
        """The command that has another one run on a host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    @staticmethod
    def address(host: str) -> str:
        """Of a host."""
        return f"10.77.0.{ord(host) - ord('a') + 1}"

    def build(self) -> None:
        """Makes everything."""
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for host in "abc":
            there = self.namespace(host)
            _ip("netns", "add", there)
            _ip(
                "-n",
                self._hub,
                "link",
                "add",
                "name",
                f"port-{host}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                there,
            )
            _ip("-n", self._hub, "link", "set", f"port-{host}", "master", "bridge", "up")
            _ip("-n", there, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", there, "link", "set", "eth0", "up")
            _ip("-n", there, "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        """Nothing goes to or from a host any more, and nobody is told."""
        _ip("-n", self._hub, "link", "set", f"port-{host}", "nomaster")

    def heal(self, host: str) -> None:
        """It is joined again."""
        _ip("-n", self._hub, "link", "set", f"port-{host}", "master", "bridge")

    def received(self, host: str) -> int:
        """Bytes that came to a host so far, as its kernel counts them: headers and all."""
        shown = subprocess.run(
            ["ip", "-n", self.namespace(host), "-s", "-j", "link", "show", "eth0"],
            check=True,
            capture_output=True,
        )
        return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"])

    def remove(self) -> None:
        """Leaves nothing behind."""
        for host in ("hub", "a", "b", "c"):
            subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True, check=False)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Three joined hosts, gone at the end."""
    made = Network()
    try:
        made.build()
        yield made
    finally:
        made.remove()


class Wire:
    """Joins "a" and "b" of a network at 10.78.0.1 and 2 by two TUN devices: late and lossy, as it is told.

    In user space, because not every kernel has netem.
    """

    def __init__(self, net: Network, delay: float, loss: float) -> None:
        self._delay = delay
        self._loss = loss
        self._ends = [self._end(net, host) for host in "ab"]
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._threads: list[threading.Thread] = []
        for source, sink in (self._ends, self._ends[::-1]):
            late: SimpleQueue[tuple[float, bytes] | None] = SimpleQueue()
            self._threads.append(threading.Thread(target=self._take, args=(source, late)))
            self._threads.append(threading.Thread(target=self._give, args=(sink, late)))
        for thread in self._threads:
            thread.start()

    @staticmethod
    def address(host: str) -> str:
        """Of a host, over this wire."""
        return f"10.78.0.{ord(host) - ord('a') + 1}"

    def close(self) -> None:
        """Leaves nothing behind."""
        os.eventfd_write(self._wake, 1)
        for thread in self._threads:
            thread.join()
        for end in (*self._ends, self._wake):
            os.close(end)

    def _end(self, net: Network, host: str) -> int:
        """A TUN device in a host's namespace; what goes through it comes here."""
        name = f"nxw{uuid.uuid4().hex[:8]}"
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        there = net.namespace(host)
        _ip("link", "set", name, "netns", there)
        _ip("-n", there, "address", "add", f"{self.address(host)}/24", "dev", name)
        _ip("-n", there, "link", "set", name, "up", "mtu", str(MTU))
        return end

    def _take(self, source: int, late: "SimpleQueue[tuple[float, bytes] | None]") -> None:
        dice = random.Random(source)
        while True:
            ready, _, _ = select.select([source, self._wake], [], [])
            if self._wake in ready:
                late.put(None)
                return
            packet = os.read(source, 1 << 16)
            if dice.random() >= self._loss:
                late.put((time.monotonic() + self._delay, packet))

    def _give(self, sink: int, late: "SimpleQueue[tuple[float, bytes] | None]") -> None:
        while (taken := late.get()) is not None:
            time.sleep(max(0.0, taken[0] - time.monotonic()))
            with contextlib.suppress(OSError):  # the other host is gone
                os.write(sink, taken[1])


@contextlib.contextmanager
def wire(net: Network, *, delay: float = 0.0, loss: float = 0.0) -> Iterator[Wire]:
    """A wire with `delay` seconds one way that loses a share of `loss` packets."""
    made = Wire(net, delay, loss)
    try:
        yield made
    finally:
        made.close()
