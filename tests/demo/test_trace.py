"""A trace reader that a user can trust: every request of a good file, one clear error for a bad one."""

import json
from pathlib import Path

import pytest

from nexuskv.data import mooncake_slice
from nexuskv.demo.trace import BLOCK_TOKENS, MAX_LINE_BYTES, Trace, TraceError, token_ids

GOOD = '{"timestamp": 27000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 7, 8]}\n'


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def line(**changes: object) -> str:
    return json.dumps(json.loads(GOOD) | changes) + "\n"


def test_reads_a_line(tmp_path: Path) -> None:
    (request,) = Trace(written(tmp_path, GOOD))
    assert (request.timestamp, request.input_length, request.output_length) == (27000, 1030, 5)
    assert request.hash_ids == (0, 7, 8)


def test_the_last_block_counts_only_the_tokens_it_holds(tmp_path: Path) -> None:
    (request,) = Trace(written(tmp_path, GOOD))
    assert [request.tokens_in(blocks) for blocks in range(4)] == [0, 512, 1024, 1030]


def test_the_slice_that_ships_is_complete() -> None:
    requests = list(Trace(mooncake_slice()))
    assert len(requests) == 800
    assert sum(len(request.hash_ids) for request in requests) == 22_023


def test_can_be_read_again_and_cut_short() -> None:
    trace = Trace(mooncake_slice(), limit=3)
    assert list(trace) == list(trace)
    assert len(list(trace)) == 3


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    assert len(list(Trace(written(tmp_path, "\n" + GOOD + "  \n" + GOOD.strip())))) == 2


BAD_LINES = {
    "not json": ("nonsense\n", "malformed"),
    "cut off": (GOOD[:40] + "\n", "truncated"),
    "not an object": ("[1, 2]\n", "Expected `object`"),
    "no hash ids": (
        '{"timestamp": 0, "input_length": 5, "output_length": 1}\n',
        "missing required field `hash_ids`",
    ),
    "negative id": (line(hash_ids=[0, -7, 8]), r"hash_ids\[1\]"),
    "id as text": (line(hash_ids=[0, "7", 8]), "Expected `int`, got `str`"),
    "too large an id": (line(hash_ids=[0, 2**63, 8]), r"hash_ids\[1\]"),
    "negative time": (line(timestamp=-1), "timestamp"),
    "empty prompt": (line(input_length=0, hash_ids=[]), "input_length"),
    "too few ids": (
        line(hash_ids=[0, 7]),
        "1030 prompt tokens are 3 blocks of 512, but there are 2 hash_ids",
    ),
    "too many ids": (line(hash_ids=[0, 7, 8, 9]), "but there are 4 hash_ids"),
    "not text": (b"\xff\xfe\x00\n", ""),
}


@pytest.mark.parametrize(("bad", "says"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, bad: str | bytes, says: str) -> None:
    text = (GOOD + GOOD).encode() + (bad.encode() if isinstance(bad, str) else bad) + GOOD.encode()
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match=rf"trace\.jsonl:3: not a request: .*{says}"):
        list(Trace(path))


def test_what_stands_before_a_bad_line_was_served_already(tmp_path: Path) -> None:
    requests = iter(Trace(written(tmp_path, GOOD + "nonsense\n")))
    assert next(requests).input_length == 1030
    with pytest.raises(TraceError, match=":2:"):
        next(requests)


def test_an_endless_line_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, b"[" + b"1," * (MAX_LINE_BYTES // 2 + 1))
    with pytest.raises(TraceError, match=r"trace\.jsonl:1: the line is longer than"):
        list(Trace(path))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_requests_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="holds no request"):
        list(Trace(written(tmp_path, text)))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        list(Trace(tmp_path / "absent.jsonl"))


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        list(Trace(tmp_path))


def test_token_ids_tell_blocks_apart_and_stay_in_the_vocabulary() -> None:
    ids = (0, 1, 2**16, 2**32, 2**48, 2**63 - 1)
    tokens = token_ids(ids).reshape(len(ids), BLOCK_TOKENS)
    assert len({row.tobytes() for row in tokens}) == len(ids)
    assert tokens.max() < 128_256
    assert (token_ids((2**48, 0))[:BLOCK_TOKENS] == tokens[4]).all()
