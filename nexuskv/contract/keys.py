"""Page keys: the names under which pages are found.

Owns the hash chain and its byte encoding. Knows nothing of descriptors but their digest, and nothing of the index.

    root  = BLAKE2b-256( "nexuskv-chain-v1" | len d | digest | len m | model | len t | tenant | len s | salt )
    key 0 = BLAKE2b-256( root  | token 0 .. token S-1 )
    key i = BLAKE2b-256( key i-1 | token i*S .. token i*S + S-1 )

Lengths and tokens are unsigned 32-bit little-endian; strings are UTF-8; hashes are 32 bytes, unkeyed, without salt or
personalisation. A length before each part keeps ("ab", "c") and ("a", "bc") apart. Tokens that do not fill a page have
no key. A page of 16 tokens hashes 96 bytes: one block of BLAKE2b.
"""

import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from nexuskv.errors import LocalError

KEY_BYTES: Final = 32
MAX_TOKEN_ID: Final = 2**32 - 1
_ROOT_MAGIC: Final = b"nexuskv-chain-v1"
_TOKEN_BYTES: Final = 4

TokenIds: TypeAlias = "Iterable[int] | np.ndarray[Any, Any] | bytes | bytearray | memoryview"
"""Integers, an integer array of one dimension, or bytes that already are u32 little-endian."""


def chain_root(digest: bytes, model: str, tenant: str, salt: str) -> bytes:
    """Parent of the first page: 32 bytes that keep descriptors, model revisions, tenants and salts apart."""
    if len(digest) != KEY_BYTES:
        raise LocalError(f"a descriptor digest has {KEY_BYTES} bytes, not {len(digest)}; pass descriptor.digest")
    chain = blake2b(_ROOT_MAGIC, digest_size=KEY_BYTES)
    for part in (digest, model.encode(), tenant.encode(), salt.encode()):
        chain.update(len(part).to_bytes(4, "little"))
        chain.update(part)
    return chain.digest()


def page_keys(root: bytes, token_ids: TokenIds, page_tokens: int) -> list[bytes]:
    """Keys of the full pages of `token_ids`, each chained to the one before; the first to `root`."""
    if page_tokens < 1:
        raise LocalError(f"page_tokens is {page_tokens}; it must be 1 or more")
    tokens = _encode(token_ids)
    step = _TOKEN_BYTES * page_tokens
    keys, parent = [], root
    for start in range(0, len(tokens) - step + 1, step):
        parent = blake2b(parent + tokens[start : start + step], digest_size=KEY_BYTES).digest()
        keys.append(parent)
    return keys


def _encode(token_ids: TokenIds) -> bytes:
    """The ids as consecutive u32 little-endian."""
    if isinstance(token_ids, array | np.ndarray) or hasattr(token_ids, "__array__"):
        return _from_array(np.asarray(token_ids))
    if isinstance(token_ids, bytes | bytearray | memoryview):
        return _from_buffer(memoryview(token_ids))
    ids = token_ids if isinstance(token_ids, list | tuple) else list(token_ids)
    try:
        encoded = array("I", ids)
    except (OverflowError, TypeError):
        _refuse_first_bad(ids)
    if sys.byteorder == "big":
        encoded.byteswap()
    return encoded.tobytes()


def _from_array(ids: np.ndarray[Any, Any]) -> bytes:
    if ids.ndim != 1:
        raise LocalError(f"token_ids has {ids.ndim} dimensions; pass the one-dimensional ids of one sequence")
    if ids.size and ids.dtype.kind not in "iu":
        raise LocalError(f"token_ids has dtype {ids.dtype}; token ids are integers")
    bad = (ids < 0) | (ids > MAX_TOKEN_ID) if ids.dtype.kind == "i" or ids.dtype.itemsize > 4 else None
    if bad is not None and bad.any():
        _refuse(int(bad.argmax()), ids[bad.argmax()])
    return ids.astype("<u4").tobytes()


def _from_buffer(buffer: memoryview) -> bytes:
    """Bytes are taken as u32 already; a typed memoryview is an array like any other."""
    if buffer.format != "B":
        return _from_array(np.asarray(buffer))
    if buffer.nbytes % _TOKEN_BYTES:
        raise LocalError(f"token_ids has {buffer.nbytes} bytes; u32 little-endian ids need a multiple of 4")
    return buffer.tobytes()


def _refuse_first_bad(ids: "list[Any] | tuple[Any, ...]") -> NoReturn:
    for position, token in enumerate(ids):
        try:
            array("I", (token,))
        except (OverflowError, TypeError):
            _refuse(position, token)
    raise AssertionError("an array of ids failed although each id alone does not")


def _refuse(position: int, token: object) -> NoReturn:
    raise LocalError(f"token_ids[{position}] is {token!r}; token ids are integers from 0 to {MAX_TOKEN_ID}")
