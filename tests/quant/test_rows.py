"""Rows of numbers in int8, int4 and fp8 and back: each within the error that its module states."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nexuskv.errors import LocalError
from nexuskv.quant import fp8, int4, int8
from tests.quant.arrays import DTYPES, bad, exact, finite, normal

Wide = NDArray[np.longdouble]


class Codec(NamedTuple):
    quantize: Callable[[Any], tuple[NDArray[Any], NDArray[np.float32]]]
    dequantize: Callable[..., NDArray[Any]]
    bound: Callable[[Wide, Wide], Wide]
    largest: float
    bits: int


def integer_bound(slack: float) -> Callable[[Wide, Wide], Wide]:
    return lambda _, scale: scale / 2 * np.longdouble(1 + slack)


def rounded_half(x: Wide, scale: Wide) -> Wide:
    """Half a scale, and half a unit in the last place of the float32 that it is rounded to."""
    half: Wide = scale / 2
    return half + (np.abs(x) + half) * np.longdouble(2) ** -24


def float_bound(relative: float, absolute: float) -> Callable[[Wide, Wide], Wide]:
    def bound(x: Wide, scale: Wide) -> Wide:
        rounded: Wide = np.maximum(np.abs(x) * relative, scale * absolute)
        return rounded * np.longdouble(1 + 2**-18) + np.longdouble(2) ** -149

    return bound


CODECS = {
    "int8": Codec(int8.quantize, int8.dequantize, rounded_half, 127, 8),
    "int4": Codec(int4.quantize, int4.dequantize, integer_bound(2**-19), 7, 4),
    "e4m3": Codec(lambda x: fp8.quantize(x, "fp8_e4m3"), fp8.dequantize, float_bound(2**-4, 2**-10), 448, 8),
    "e5m2": Codec(
        lambda x: fp8.quantize(x, "fp8_e5m2"), fp8.dequantize, float_bound(2**-3, 2**-17), 57344, 8
    ),
}
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@every_codec
@given(x=finite())
def test_the_error_is_within_the_stated_bound(codec: Codec, x: NDArray[np.float32]) -> None:
    payload, scales = codec.quantize(x)
    back = codec.dequantize(payload, scales)
    assert (scales.shape, back.shape) == (x.shape[:-1], x.shape)
    assert scales.dtype == back.dtype == np.float32
    assert payload.nbytes * 8 == x.size * codec.bits
    error = np.abs(exact(x) - exact(back))
    assert (error <= codec.bound(exact(x), exact(scales)[..., None])).all()


@every_codec
@given(x=finite())
def test_scales_are_the_peak_over_the_largest(codec: Codec, x: NDArray[np.float32]) -> None:
    _, scales = codec.quantize(x)
    peaks = np.abs(x).max(-1)
    plain = peaks / np.float32(codec.largest)
    ordinary = (plain >= np.finfo(np.float32).smallest_normal) & (peaks < 3e38)
    assert (scales[ordinary] == plain[ordinary]).all()
    assert (scales[peaks == 0] == 0).all()
    assert np.isfinite(scales).all()


@every_codec
def test_zero_rows_have_scale_zero_and_give_zeros_back(codec: Codec) -> None:
    x = normal((3, 8))
    x[1] = 0
    payload, scales = codec.quantize(x)
    assert scales[1] == 0
    assert not codec.dequantize(payload, scales)[1].any()
    assert codec.dequantize(payload, scales)[::2].any(-1).all()


@every_codec
@given(x=finite(), value=bad(), data=st.data())
def test_what_is_not_finite_is_refused_with_its_place(
    codec: Codec, x: NDArray[np.float32], value: float, data: st.DataObject
) -> None:
    rows = x.reshape(-1, x.shape[-1])
    row = data.draw(st.integers(0, rows.shape[0] - 1))
    column = data.draw(st.integers(0, rows.shape[1] - 1))
    rows[row, column] = value
    with pytest.raises(LocalError, match=f"x holds {value} in row {row}, column {column}"):
        codec.quantize(x)


@every_codec
def test_the_place_is_right_beyond_the_first_block(codec: Codec) -> None:
    x = normal((3000, 128))
    x[2500, 7] = np.nan
    with pytest.raises(LocalError, match="row 2500, column 7"):
        codec.quantize(x)


@every_codec
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_narrow_numbers_are_quantised_as_they_are(codec: Codec, dtype: np.dtype[Any]) -> None:
    x = normal((5, 3, 16)).astype(dtype)
    payload, scales = codec.quantize(x)
    wide, wide_scales = codec.quantize(x.astype(np.float32))
    assert payload.tobytes() == wide.tobytes()
    assert scales.tobytes() == wide_scales.tobytes()


@every_codec
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_output_may_be_given(codec: Codec, dtype: np.dtype[Any]) -> None:
    payload, scales = codec.quantize(normal((5, 3, 16)))
    out = np.empty((5, 3, 16), dtype)
    assert codec.dequantize(payload, scales, out) is out
    assert out.tobytes() == codec.dequantize(payload, scales).astype(dtype).tobytes()
    strided = np.empty((5, 6, 16), dtype)[:, ::2]
    codec.dequantize(payload, scales, strided)
    assert strided.tobytes() == out.tobytes()


@every_codec
def test_what_float16_cannot_hold_is_infinite(codec: Codec) -> None:
    payload, scales = codec.quantize(np.asarray([[1e6, -1e6]], np.float32))
    out = codec.dequantize(payload, scales, np.empty((1, 2), np.float16))
    assert out.tolist() == [[np.inf, -np.inf]]


@every_codec
def test_rows_of_several_blocks_are_like_rows_of_one(codec: Codec) -> None:
    x = normal((5000, 64))
    payload, scales = codec.quantize(x)
    for at in (0, 1023, 1024, 4999):
        one, scale = codec.quantize(x[at])
        assert one.tobytes() == payload[at].tobytes()
        assert scale == scales[at]


@every_codec
def test_no_rows_are_no_fault(codec: Codec) -> None:
    payload, scales = codec.quantize(np.empty((0, 8), np.float32))
    assert codec.dequantize(payload, scales).shape == (0, 8)


@every_codec
@pytest.mark.parametrize(
    "x", [np.zeros((2, 8)), np.zeros((2, 8), np.int8), np.zeros((), np.float32)], ids=str
)
def test_other_input_is_refused(codec: Codec, x: NDArray[Any]) -> None:
    with pytest.raises(LocalError, match="x has"):
        codec.quantize(x)


@every_codec
def test_payload_scales_and_output_must_fit(codec: Codec) -> None:
    payload, scales = codec.quantize(normal((2, 8)))
    for arguments in (
        (payload, scales[:1]),
        (payload, scales.astype(np.float64)),
        (payload.astype(np.int32), scales),
        (payload[:, :0], scales),
        (payload[0, 0], scales[0]),
    ):
        with pytest.raises(LocalError, match="they must be"):
            codec.dequantize(*arguments)
    with pytest.raises(LocalError, match="out is"):
        codec.dequantize(payload, scales, np.empty((2, 7), np.float32))
    out = np.empty((2, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(LocalError, match="out is read-only"):
        codec.dequantize(payload, scales, out)


# What is peculiar to one


def test_int8_and_its_scales_may_be_written_in_place() -> None:
    x = normal((4, 6, 16))
    payload, scales = np.empty((4, 12, 16), np.int8)[:, ::2], np.empty((4, 12), np.float32)[:, ::2]
    assert int8.quantize(x, payload=payload, scales=scales)[0] is payload
    expected, expected_scales = int8.quantize(x)
    assert payload.tobytes() == expected.tobytes()
    assert scales.tobytes() == expected_scales.tobytes()
    with pytest.raises(LocalError, match="payload is"):
        int8.quantize(x, payload=np.empty((4, 6, 15), np.int8))
    payload.flags.writeable = False
    with pytest.raises(LocalError, match="payload is read-only"):
        int8.quantize(x, payload=payload)


def exact_error(x: NDArray[np.float32]) -> tuple[Wide, Wide]:
    """How far the stored numbers, payload times scale, are from x, and half the scales: nothing is rounded."""
    payload, scales = int8.quantize(x)
    wide = exact(scales)[..., None]
    return np.abs(exact(x) - payload * wide), np.broadcast_to(wide / 2, x.shape)


@given(finite())
def test_int8_is_never_off_by_more_than_half_a_scale(x: NDArray[np.float32]) -> None:
    error, half = exact_error(x)
    assert (error <= half).all()


@given(
    peak=st.floats(2.0**-120, 2.0**120, width=32),
    quotients=st.lists(st.integers(-127, 126), min_size=1, max_size=40),
    step=st.integers(-3, 3),
)
def test_int8_chooses_the_nearer_of_two_where_float32_sees_a_tie(
    peak: float, quotients: list[int], step: int
) -> None:
    """Numbers that lie half-way between two steps, or up to three float32 beside it."""
    scale = float(np.float32(peak) / np.float32(127))
    halves = np.asarray([(q + 0.5) * scale for q in quotients]).astype(np.float32)
    for _ in range(abs(step)):
        halves = np.nextafter(halves, np.float32(np.copysign(np.inf, step)))
    error, half = exact_error(np.append(halves, np.float32(peak)))
    assert (error <= half).all()


def test_dividing_in_float32_alone_would_choose_the_farther_one() -> None:
    """What the look at the exact quotient is for: without it, some are off by more than half a scale."""
    x = np.random.default_rng(5).uniform(-1, 1, (200_000, 32)).astype(np.float32)
    scales = (np.abs(x).max(-1) / np.float32(127))[:, None]
    careless = np.rint(x / scales)
    assert (np.abs(exact(x) - careless * exact(scales)) > exact(scales) / 2).any()
    error, half = exact_error(x)
    assert (error <= half).all()


def test_int8_is_symmetric() -> None:
    payload, scales = int8.quantize(np.asarray([[-1.0, 0.5, 1.0]], np.float32))
    assert payload.tolist() == [[-127, 64, 127]]
    assert scales[0] == np.float32(1) / np.float32(127)


def test_int4_packs_the_lower_index_into_the_low_nibble() -> None:
    payload, scales = int4.quantize(np.asarray([[1, -2, 7, -7]], np.float32))
    assert (payload.tolist(), scales.tolist()) == ([[0xE1, 0x97]], [1.0])


def test_int4_reads_what_it_never_writes() -> None:
    assert int4.dequantize(np.asarray([[0x88]], np.uint8), np.ones(1, np.float32)).tolist() == [[-8, -8]]


def test_int4_comes_in_pairs() -> None:
    with pytest.raises(LocalError, match="rows of 7 numbers"):
        int4.quantize(np.zeros((2, 7), np.float32))


@pytest.mark.parametrize(
    ("form", "dtype"), [("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2)]
)
def test_fp8_decodes_as_ml_dtypes_does(form: str, dtype: Any) -> None:
    x = normal((64, 32))
    payload, scales = fp8.quantize(x, form)
    assert payload.dtype == dtype
    assert (fp8.dequantize(payload, scales) == payload.astype(np.float32) * scales[:, None]).all()
    assert np.abs(payload.astype(np.float32)).max() == fp8.Format(form).largest


def test_an_unknown_format_of_fp8_is_refused() -> None:
    with pytest.raises(LocalError, match="fp8_e4m3, fp8_e5m2"):
        fp8.quantize(normal((2, 2)), "fp8_e3m4")
