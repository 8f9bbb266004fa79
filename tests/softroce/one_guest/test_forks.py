"""A device belongs to the process that opened it: a child of fork can neither use it nor break it."""

import gc
import os
from collections.abc import Callable

from nexuskv.errors import LocalError
from nexuskv_transport.checks.pulling import all_ok, pull_all
from tests.softroce.ends import PAGE, Ends, both, exposed, page_of


def test_a_child_is_refused_and_its_parent_goes_on() -> None:
    with (
        both("a") as ends,
        exposed(ends.serving, 1, "a", b"p" * PAGE) as (_, region),
        exposed(ends.pulling, 1, "a", bytes(PAGE)) as (into, _),
        ends.connect() as connection,
    ):
        assert all_ok(pull_all(connection, [page_of(region, into)]))
        pull = page_of(region, into)
        for use in (
            lambda: connection.pull([pull], float("inf")),
            ends.connect,
            lambda: ends.pulling.withdraw(1),
        ):
            assert _in_child(use) == "refused"
        assert _in_child(lambda: _let_go_of(ends)) == "done"
        assert all_ok(pull_all(connection, [pull]))


def _let_go_of(ends: Ends) -> None:
    """What Python does at the end of a process that has not been ended by os._exit."""
    del ends
    gc.collect()


def _in_child(use: Callable[[], object]) -> str:
    pid = os.fork()
    if not pid:
        code = 2
        try:
            use()
            code = 0
        except LocalError:
            code = 1
        finally:
            os._exit(code)
    return {0: "done", 1: "refused"}[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
