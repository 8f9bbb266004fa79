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
    dsa,
    dsa_indexer,
    kda,
    mamba2,
    mha,
    mla,
    nsa,
    tot,
    vision,
)

_IDS = st.text("abcXYZ019._:/-", min_size=1, max_size=160)
_COUNTS = st.integers(1, 9)
_EVEN = _COUNTS.map(lambda half: 2 * half)  # packed int4 needs it
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


def _sparse() -> list[st.SearchStrategy[AnyDescriptor]]:
    return [
        st.builds(
            _stored(dsa),
            _IDS,
            stored=_STORED,
            top_k=_COUNTS,
            block_tokens=_COUNTS,
            kv_heads=_COUNTS,
            head_dim=_EVEN,
            index_dim=st.none() | _EVEN,
            **_common(),
        ),
        st.builds(_stored(dsa_indexer), _IDS, stored=_STORED, index_dim=_EVEN, **_common()),
        st.builds(
            _stored(nsa),
            _IDS,
            stored=_STORED,
            block_tokens=st.sampled_from([1, 2, 4]),
            summary_stride=st.none() | st.sampled_from([1, 2]),
            top_k=st.none() | _COUNTS,
            kv_heads=_COUNTS,
            head_dim=_EVEN,
            **_common() | {"page_tokens": st.sampled_from([4, 8])},
        ),
    ]


def _others() -> list[st.SearchStrategy[AnyDescriptor]]:
    in_common = _common()
    del in_common["page_tokens"]
    return [
        st.builds(
            kda,
            _IDS,
            dtype=_PLAIN_DTYPES,
            heads=_COUNTS,
            key_dim=_COUNTS,
            value_dim=st.none() | _COUNTS,
            conv_width=st.none() | _COUNTS,
            **_common(),
        ),
        st.builds(
            _stored(vision),
            _IDS,
            stored=_STORED,
            frames=_COUNTS,
            grid_height=_COUNTS,
            grid_width=_COUNTS,
            key_dim=_EVEN,
            **in_common,
        ),
        st.builds(
            _stored(vision),
            _IDS,
            stored=_STORED,
            grid_height=_COUNTS,
            grid_width=_COUNTS,
            key_dim=st.none() | _EVEN,
            kv_heads=_COUNTS,
            head_dim=_EVEN,
            **in_common,
        ),
        st.builds(
            _stored(tot),
            _IDS,
            stored=_STORED,
            kv_heads=_COUNTS,
            head_dim=_EVEN,
            dimension_order=st.sampled_from(DimensionOrder),
            **_common(),
        ),
    ]


def descriptors() -> st.SearchStrategy[AnyDescriptor]:
    """Any valid descriptor with a page of at most a few hundred KiB."""
    return st.one_of(
        *_sparse(),
        *_others(),
        st.builds(
            _stored(mha),
            _IDS,
            stored=_STORED,
            kv_heads=_COUNTS,
            head_dim=_EVEN,
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
