"""An engine in C across the daemon's death and restart: it needs no restart, and its open pages stay readable."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexuskv.native import _core
from tests.native.building import COMPILERS, build, sanitizer_works
from tests.native.engine import Engine
from tests.native.greeter import Greeter
from tests.native.objects import PAGE_BYTES, SEGMENT, SLOT_BYTES, Objects, key, memory_file


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converse")
    works = sanitizer_works(COMPILERS[0], "address,undefined", folder)
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all") if works else ()
    return build(folder, COMPILERS[0], "converse", *sanitizers)


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


@pytest.mark.parametrize(("instance", "epoch"), [("other", 1), ("test", 2)])
def test_another_daemons_page_is_not_read_for_one_of_the_daemon_before(
    greeter: Greeter, program: Path, instance: str, epoch: int
) -> None:
    with Objects(instance=instance, epoch=epoch) as others, Engine(program, greeter.address) as engine:
        os.close(greeter.data)
        greeter.objects, greeter.data = others, memory_file("data", others.max_entries * SLOT_BYTES)
        others.publish(2)
        for number in (1, 2):
            greeter.write(number, b"\x09" * PAGE_BYTES)
        greeter.hang_up()

        assert engine.pin(key(1)) == "miss"  # it is in the old index, and in a segment of the same number
        assert engine.pin(key(2)) == "pinned 0"
        assert engine.ask("sum 0") == str(9 * PAGE_BYTES)
        assert engine.ask("unpin 0") == "ok"


def test_a_page_stays_readable_when_another_daemon_has_come(greeter: Greeter, program: Path) -> None:
    old_data = greeter.data
    greeter.objects.writer.add_segment(4, 1, 10, SLOT_BYTES, PAGE_BYTES, 10 * SLOT_BYTES, b"d" * 32)
    greeter.objects.writer.publish([(key(4), b"", 4, 0, PAGE_BYTES, 16, 0, 0, 0)])
    with Objects(instance="other") as others, Engine(program, greeter.address) as engine:
        assert engine.pin(key(2)) == "pinned 0"
        greeter.objects, greeter.data = others, memory_file("data", others.max_entries * SLOT_BYTES)
        greeter.hang_up()

        assert engine.pin(key(4)) == "miss"
        assert engine.ask("sum 0") == str(2 * PAGE_BYTES)
        assert engine.ask("unpin 0") == "ok"
        assert engine.ask("sum 0") == "gone"
    os.close(old_data)


@pytest.mark.parametrize("row", [[SEGMENT, 2, 100, SLOT_BYTES], [SEGMENT, 1, 50, 2 * SLOT_BYTES]])
def test_a_segment_that_the_index_describes_otherwise_is_not_used(
    greeter: Greeter, program: Path, row: list[int]
) -> None:
    greeter.answers["map"] = lambda m: [
        (["segments", 0, [[*row, False]]], [os.dup(greeter.data)]),
        (["done", m[1]], []),
    ]
    with Engine(program, greeter.address) as engine:
        assert engine.pin(key(1)) == "miss"


def test_a_daemon_that_hangs_up_is_heard_first(greeter: Greeter, program: Path) -> None:
    with Engine(program, greeter.address) as engine:
        greeter.hang_up("refused", 0, "arena_full", "no descriptors left: raise its limit", {})

        assert engine.pin(key(1)) == "error no descriptors left: raise its limit"
        assert engine.pin(key(1)) == "pinned 0"


def test_a_forked_child_is_told_to_attach_anew_and_takes_nothing_from_its_parent(
    greeter: Greeter, program: Path
) -> None:
    with Engine(program, greeter.address) as engine:
        assert engine.pin(key(1)) == "pinned 0"

        assert engine.ask("fork 0") == "-8 -8 -8 gone"

        assert engine.ask("sum 0") == str(PAGE_BYTES)
        assert engine.ask("unpin 0") == "ok"
    assert greeter.asked == ["hello", "attach", "map"]
