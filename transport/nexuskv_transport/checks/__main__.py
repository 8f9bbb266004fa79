"""The far end of a check as a process of its own, which a check can stop and kill.

Does what it is told by lines on its standard input, and ends when that ends. Owns no more than this conversation.
"""

import sys

import msgspec

from nexuskv_transport.checks.far import Far, FarOrders
from nexuskv_transport.registry import open_transport


def main() -> None:
    """Serves, and withdraws each region whose number it reads; a line in answer to each order."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=FarOrders)
    far = Far(open_transport(orders.address, orders.security), orders.address)
    _answer(msgspec.json.encode(far.card))
    for line in sys.stdin:
        far.withdraw(int(line))
        _answer(b"")
    far.close()


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
