"""Engines in C and C++: they attach through the library, find pages by key, and read them in place."""

import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nexuskv.native import _core
from tests.native.building import COMPILERS, build, build_cpp, run, sanitizer_works
from tests.native.greeter import Greeter
from tests.native.objects import PAGE_BYTES, SEGMENT, SLOT_BYTES, Objects, key

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture
def greeter(tmp_path: Path, objects: Objects) -> Iterator[Greeter]:
    with Greeter(tmp_path, objects) as made:
        yield made


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    works = sanitizer_works(COMPILERS[0], "address,undefined", tmp_path_factory.mktemp("sanitizer"))
    return SANITIZERS if works else ()


@pytest.fixture(scope="module")
def read_page(tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]) -> Path:
    return build(tmp_path_factory.mktemp("c"), COMPILERS[0], "read_page", *flags)


@pytest.fixture(scope="module")
def read_pages(tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]) -> Path:
    return build_cpp(tmp_path_factory.mktemp("cpp"), COMPILERS[0], "read_pages", *flags)


def page(number: int) -> bytes:
    return random.Random(number).randbytes(PAGE_BYTES)


def test_a_c_program_reads_a_page_in_place(tmp_path: Path, greeter: Greeter, read_page: Path) -> None:
    greeter.objects.publish(4, 5)
    greeter.write(5, page(5))
    (tmp_path / "same").write_bytes(page(5))
    (tmp_path / "other").write_bytes(page(6))

    found = run(read_page, greeter.address, key(5).hex(), tmp_path / "same")
    assert found.stdout == f"segment {SEGMENT} offset {5 * SLOT_BYTES} length {PAGE_BYTES} tokens 16\n"
    assert found.returncode == 0
    assert run(read_page, greeter.address, key(5).hex(), tmp_path / "other").returncode == 2
    assert run(read_page, greeter.address, key(9).hex(), tmp_path / "same").returncode == 1
    assert greeter.asked == ["hello", "attach", "map"] * 2 + ["hello", "attach"]
    assert [_core.PinArray(pins).held for pins in greeter.objects.others[1:]] == [0, 0, 0]


def test_a_cpp_program_reads_the_resident_prefix(greeter: Greeter, read_pages: Path) -> None:
    greeter.objects.publish(1, 2, 3)
    for number in (1, 2, 3):
        greeter.write(number, page(number))

    done = run(read_pages, greeter.address, *(key(n).hex() for n in (1, 2, 3, 4)))

    assert done.stdout.splitlines() == [f"16 {sum(page(n))}" for n in (1, 2, 3)]
    assert greeter.asked == ["hello", "attach", "map"]


def test_no_daemon_is_an_error_that_names_the_socket(tmp_path: Path, read_page: Path) -> None:
    done = run(read_page, f"unix:{tmp_path}/nobody", key(1).hex(), "/dev/null")

    assert (done.returncode, done.stderr) == (3, f"{tmp_path}/nobody: No such file or directory\n")


def test_an_address_of_another_kind_is_refused(read_page: Path) -> None:
    done = run(read_page, "tcp:host:1", key(1).hex(), "/dev/null")

    assert done.returncode == 3
    assert "the daemon's address is unix:/path/to/socket" in done.stderr


def test_the_socket_is_found_through_the_environment(
    tmp_path: Path, greeter: Greeter, read_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXUSKV_SOCKET", greeter.address)

    assert run(read_pages).returncode == 0
    assert greeter.asked == ["hello", "attach"]


def test_a_refusal_is_passed_on_in_the_daemons_words(greeter: Greeter, read_page: Path) -> None:
    sentence = "protocol 1 is too old for this daemon: upgrade the client"
    greeter.answers["hello"] = lambda m: [(["refused", m[1], "version_mismatch", sentence, {}], [])]

    done = run(read_page, greeter.address, key(1).hex(), "/dev/null")

    assert (done.returncode, done.stderr) == (3, sentence + "\n")


def test_a_daemon_that_hangs_up_without_listening_is_heard(tmp_path: Path, read_page: Path) -> None:
    def turn_away() -> None:
        connection, _ = listener.accept()
        connection.recv(1, socket.MSG_PEEK)
        connection.send(msgspec.msgpack.encode(["refused", 0, "arena_full", "too many clients", {}]))
        connection.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "busy"))
        listener.listen()
        thread = threading.Thread(target=turn_away)
        thread.start()
        done = run(read_page, f"unix:{tmp_path}/busy", key(1).hex(), "/dev/null")
        thread.join()

    assert (done.returncode, done.stderr) == (3, "too many clients\n")


def test_a_page_of_a_segment_that_cannot_be_mapped_is_an_error_with_the_reason(
    greeter: Greeter, read_page: Path
) -> None:
    greeter.objects.writer.add_segment(4, 1, 10, SLOT_BYTES, PAGE_BYTES, 10 * SLOT_BYTES, b"d" * 32)
    greeter.objects.writer.publish([(key(1), b"", 4, 0, PAGE_BYTES, 16, 0, 0, 0)])

    done = run(read_page, greeter.address, key(1).hex(), "/dev/null")

    assert (done.returncode, done.stderr) == (3, "no such segment here: ask for another\n")


def test_a_segment_smaller_than_announced_is_refused(greeter: Greeter, read_page: Path) -> None:
    greeter.objects.publish(1)
    os.truncate(greeter.data, SLOT_BYTES)

    done = run(read_page, greeter.address, key(1).hex(), "/dev/null")

    assert done.returncode == 3
    assert "truncated" in done.stderr


@pytest.mark.parametrize(
    "answer",
    [
        [],
        ["attached"],
        ["attached", 2],
        [["attached"], 2],
        ["attached", -2, 9],
        ["attached", "2", 9],
        {"attached": 2},
        "attached",
        None,
        ["a" * 1000, 2],
        ["segments", 0, 5],
        ["segments", 0, [[1, 2, 3, 4, False]]],
        ["dropped", 0, "x"],
        ["welcome", 2, 1, 7, "test", "t", "0.1.0"],
    ],
)
def test_an_answer_of_another_shape_is_a_clear_error(
    greeter: Greeter, read_page: Path, answer: object
) -> None:
    greeter.answers["attach"] = lambda _: [(answer, [])]  # type: ignore[list-item]  # wrong on purpose

    done = run(read_page, greeter.address, key(1).hex(), "/dev/null")

    assert done.returncode == 3
    assert "what this library does not understand" in done.stderr


def test_objects_that_do_not_fit_are_refused(greeter: Greeter, read_page: Path) -> None:
    objects = greeter.objects
    wrong = [objects.touch, objects.index, objects.pins]
    greeter.answers["attach"] = lambda m: [(["attached", m[1], 9], [os.dup(fd) for fd in wrong])]

    done = run(read_page, greeter.address, key(1).hex(), "/dev/null")

    assert done.returncode == 3
    assert "no NexusKV object" in done.stderr
