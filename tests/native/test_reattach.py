"""An engine in C across the daemon's death and restart: it needs no restart, and its open pages stay readable."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexuskv.native import _core
from tests.native.building import COMPILERS, build
from tests.native.engine import Engine
from tests.native.greeter import Greeter
from tests.native.objects import PAGE_BYTES, SLOT_BYTES, Objects, key


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("converse"), COMPILERS[0], "converse")


@pytest.fixture
def greeter(tmp_path: Path, objects: Objects) -> Iterator[Greeter]:
    objects.publish(1, 2)
    with Greeter(tmp_path, objects) as made:
        made.write(1, b"\x01" * PAGE_BYTES)
        made.write(2, b"\x02" * PAGE_BYTES)
        yield made


def test_hits_go_on_while_the_daemon_is_dead(greeter: Greeter, program: Path) -> None:
    with Engine(program, greeter.address) as engine:
        assert engine.pin(key(1)) == "pinned 0"
        greeter.hang_up()

        assert engine.pin(key(2)) == "pinned 1"
        assert [engine.ask("sum 0"), engine.ask("sum 1")] == [str(PAGE_BYTES), str(2 * PAGE_BYTES)]
        assert engine.pin(key(3)) == "miss"
        assert [engine.ask("unpin 0"), engine.ask("unpin 0")] == ["ok", "stale"]
    assert greeter.asked == ["hello", "attach", "map"]


def test_a_new_session_is_made_when_a_segment_is_missing(greeter: Greeter, program: Path) -> None:
    with Engine(program, greeter.address) as engine:
        greeter.hang_up()

        assert engine.pin(key(1)) == "pinned 0"
        assert engine.ask("sum 0") == str(PAGE_BYTES)
    assert greeter.asked == ["hello", "attach", "hello", "map"]


def test_a_page_of_an_unknown_segment_is_a_miss_while_the_daemon_is_dead(
    greeter: Greeter, program: Path
) -> None:
    with Engine(program, greeter.address) as engine:
        greeter.path.unlink()
        greeter.hang_up()

        assert engine.pin(key(1)) == "miss"
    assert _core.PinArray(greeter.objects.others[1]).held == 0


def test_an_engine_follows_a_daemon_that_started_afresh(greeter: Greeter, program: Path) -> None:
    with Objects() as fresh, Engine(program, greeter.address) as engine:
        old, old_data = greeter.objects, greeter.data
        assert engine.pin(key(1)) == "pinned 0"
        buckets = fresh.writer.publish([(key(2), b"", 3, 5 * SLOT_BYTES, PAGE_BYTES, 16, 0, 0, 0)])
        greeter.objects, greeter.data = fresh, os.dup(old_data)
        greeter.write(5, b"\x05" * PAGE_BYTES)
        old.writer.set_moved()

        assert engine.pin(key(1)) == "miss"
        assert engine.pin(key(2)) == "pinned 1"
        assert engine.ask("sum 1") == str(5 * PAGE_BYTES)
        assert engine.ask("sum 0") == str(PAGE_BYTES)
        assert _core.owner_alive(old.others[1])
        assert engine.ask("unpin 0") == "ok"
        assert not _core.owner_alive(old.others[1])  # its last page was released, so the old attachment went
        assert engine.ask("sum 0") == "gone"
        fresh.writer.retire(buckets)
        assert fresh.writer.reclaim(buckets, [_core.PinArray(fresh.others[1])]) == []
        os.close(old_data)
