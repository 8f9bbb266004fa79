"""Sizes as people write them: what is understood, what is refused, and that both ways agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.errors import LocalError
from nexuskv.quantity import format_size, parse_size

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("4GiB", 4 << 30),
        ("4 GiB", 4 << 30),
        (" 4gib\n", 4 << 30),
        ("512M", 512 << 20),
        ("64k", 64 << 10),
        ("1T", 1 << 40),
        ("1.5GiB", 3 << 29),
        ("0.3KiB", 307),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_sizes_are_understood(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "4GB", "4Gi", "-1", "1e9", "0x10", "4 G iB", "4,5GiB", "٤GiB", "1.", ".5G", "9" * 5000],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LocalError, match="such as 4GiB"):
        parse_size(text)


def test_a_size_beyond_64_bits_is_refused() -> None:
    with pytest.raises(LocalError, match="more than a 64-bit size"):
        parse_size("8388608TiB")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (64 << 20, "64 MiB"),
        (3 << 29, "1.5 GiB"),
        (100 << 30, "100 GiB"),
        (2048 << 40, "2048 TiB"),
    ],
)
def test_sizes_are_written_short(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@given(st.integers(0, 1023), st.sampled_from(sorted(UNITS)))
def test_what_was_written_whole_reads_back_exactly(number: int, unit: str) -> None:
    nbytes = number * UNITS[unit]

    assert parse_size(f"{number}{unit}") == nbytes
    assert parse_size(format_size(nbytes)) == nbytes


@given(st.integers(0, (1 << 63) - (1 << 50)))
def test_what_was_rounded_reads_back_within_half_a_hundredth_of_its_unit(nbytes: int) -> None:
    text = format_size(nbytes)

    assert abs(parse_size(text) - nbytes) <= UNITS[text.split()[1]] / 200 + 1
