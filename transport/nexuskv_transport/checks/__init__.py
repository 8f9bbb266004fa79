"""The conformance suite: what each transport must do, checked with real bytes.

`CHECKS` are functions of a `Pair`, a near end that pulls and a far end that serves. Each raises AssertionError where
the transport under test breaks the contract of `nexuskv_transport.base`. Whoever writes a transport runs them all:

    for check in CHECKS:
        with processes("tcp://127.0.0.1:0") as pair:
            check(pair)

`processes` has the far end in a process of its own, so that it can be killed; `in_process` is for transports that do
not leave the process. Bytes come from `content`, which both ends compute by themselves.
"""

from nexuskv_transport.checks.catalogue import CHECKS, Check
from nexuskv_transport.checks.far import FOREIGN, REGION_BYTES, REVOKED, SERVED, content
from nexuskv_transport.checks.pair import Pair, in_process, processes

__all__ = [
    "CHECKS",
    "FOREIGN",
    "REGION_BYTES",
    "REVOKED",
    "SERVED",
    "Check",
    "Pair",
    "content",
    "in_process",
    "processes",
]
