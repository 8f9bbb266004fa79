"""Hypothesis strategies for descriptors of every kind: small geometries, all layouts, all schemes.

Owns how a random valid descriptor is drawn. Knows nothing of what a test asserts of it.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from nexuskv.contract import (
    AllPages,
    AnyDescriptor,
    Arrangement,
    DimensionOrder,
    DType,
    EngineFamily,
    Flag,
    Granularity,
    Window,
    mamba2,
    mha,
    mla,
)

_IDS = st.text("abcXYZ019._:/-", min_size=1, max_size=160)
_COUNTS = st.integers(1, 9)
_LAYERS = st.none() | st.integers(1, 5)
_PLAIN_DTYPES = st.sampled_from([dtype for dtype in DType if dtype is not DType.INT4])
_REUSE = st.just(AllPages()) | st.builds(Window, tokens=st.integers(1, 2**63 - 1))
_QUANTISED = st.sampled_from(
    [
        ("fp8_e4m3", "float8_e4m3fn"),
        ("fp8_e5m2", "float8_e5m2"),
        ("int4", "int4"),
        ("int8_per_token_head_f32_scale_v1", "int8"),
    ]
)
_STORED = st.tuples(st.just("none"), _PLAIN_DTYPES) | _QUANTISED


def _common() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "engine_family": st.sampled_from(EngineFamily),
        "granularity": st.sampled_from(Granularity),
        "arrangement": st.sampled_from(Arrangement),
        "compatibility_flags": st.frozensets(st.sampled_from(Flag)),
        "page_tokens": _COUNTS,
        "layers": _LAYERS,
    }


def _stored(build: Callable[..., AnyDescriptor]) -> Callable[..., AnyDescriptor]:
    def with_scheme(descriptor_id: str, stored: tuple[str, str], **rest: Any) -> AnyDescriptor:
        return build(descriptor_id, quantization=stored[0], dtype=stored[1], **rest)

    return with_scheme


def descriptors() -> st.SearchStrategy[AnyDescriptor]:
    """Any valid descriptor with a page of at most a few hundred KiB."""
    return st.one_of(
        st.builds(
            _stored(mha),
            _IDS,
            stored=_STORED,
            kv_heads=_COUNTS,
            head_dim=_COUNTS.map(lambda half: 2 * half),
            dimension_order=st.sampled_from(DimensionOrder),
            reuse=_REUSE,
            **_common(),
        ),
        st.builds(
            _stored(mla),
            _IDS,
            stored=_STORED,
            latent_dim=st.sampled_from([128, 256]),
            rope_dim=_COUNTS,
            reuse=_REUSE,
            **_common(),
        ),
        st.builds(
            mamba2,
            _IDS,
            dtype=_PLAIN_DTYPES,
            state_dtype=st.none() | _PLAIN_DTYPES,
            heads=_COUNTS,
            head_dim=_COUNTS,
            state_size=_COUNTS,
            groups=_COUNTS,
            conv_width=_COUNTS,
            **_common(),
        ),
    )
