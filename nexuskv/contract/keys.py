"""Page keys: the names under which pages are found.

Owns the hash chain and its byte encoding. Knows nothing of descriptors but their digest, and nothing of the index.

    root  = BLAKE2b-256( "nexuskv-chain-v1" | len d | digest | len m | model | len t | tenant | len s | salt )
    key 0 = BLAKE2b-256( root  | token 0 .. token S-1 )
    key i = BLAKE2b-256( key i-1 | token i*S .. token i*S + S-1 )

    tail  = BLAKE2b-256( key i | the tokens after page i, fewer than S )

Lengths and tokens are unsigned 32-bit little-endian; strings are UTF-8; hashes are 32 bytes, unkeyed, without salt or
personalisation. A length before each part keeps ("ab", "c") and ("a", "bc") apart. Tokens that do not fill a page
have a key as the tail of a branch only; the length of what is hashed keeps it apart from the keys of full pages. A
page of 16 tokens hashes 96 bytes: one block of BLAKE2b.

State that serves no input but its own (EXACT_REUSE without PREFIX_REUSE) has the whole input in every key:

    root' = BLAKE2b-256( "nexuskv-exact-v1" | root | BLAKE2b-256( all tokens ) )        in place of root

State that is found by its content (`Descriptor.content_keyed`) is not chained; page p of an input has

    root  = BLAKE2b-256( "nexuskv-content-v1" | the same parts )
    key p = BLAKE2b-256( root | BLAKE2b-256( content ) | p )
"""

import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b
from struct import iter_unpack
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nexuskv.errors import LocalError

KEY_BYTES: Final = 32
MAX_TOKEN_ID: Final = 2**32 - 1
_CHAIN_MAGIC: Final = b"nexuskv-chain-v1"
_CONTENT_MAGIC: Final = b"nexuskv-content-v1"
_EXACT_MAGIC: Final = b"nexuskv-exact-v1"
_TOKEN_BYTES: Final = 4

TokenIds: TypeAlias = "Iterable[int] | NDArray[Any] | bytes | bytearray | memoryview"
"""Integers, an integer array of one dimension (numpy, array.array, torch), or bytes that are u32 little-endian."""

Content: TypeAlias = "bytes | bytearray | memoryview | NDArray[Any]"
"""Whatever has contiguous bytes; an array's shape and type are not among them."""


def chain_root(digest: bytes, model: str, tenant: str, salt: str) -> bytes:
    """Parent of the first page: 32 bytes that keep contracts, model revisions, tenants and salts apart.

    `digest` is the descriptor's. Raises LocalError.
    """
    return _root(_CHAIN_MAGIC, digest, model, tenant, salt)


def content_root(digest: bytes, model: str, tenant: str, salt: str) -> bytes:
    """What `content_keys` begin with: 32 bytes that keep apart what `chain_root` does, and both from each other.

    `digest` is the descriptor's. Raises LocalError.
    """
    return _root(_CONTENT_MAGIC, digest, model, tenant, salt)


def page_keys(root: bytes, token_ids: TokenIds, page_tokens: int) -> list[bytes]:
    """Keys of the full pages of `token_ids`, the first chained to `root` and each other one to its predecessor.

    `root` is a chain root, or the key of the page before. Raises LocalError that names the first bad id.
    """
    _check_length("root", root, "chain_root(...) or the key of the page before")
    if page_tokens < 1:
        raise LocalError(f"page_tokens is {page_tokens}; it must be 1 or more")
    tokens = token_bytes(token_ids)
    page_bytes = _TOKEN_BYTES * page_tokens
    pages = iter_unpack(f"{page_bytes}s", tokens[: len(tokens) // page_bytes * page_bytes])
    parent = root
    return [parent := blake2b(parent + page, digest_size=KEY_BYTES).digest() for (page,) in pages]


def exact_keys(root: bytes, token_ids: TokenIds, page_tokens: int) -> list[bytes]:
    """As `page_keys`, but found by these tokens alone: those that fill no page, and how many there are, count too.

    `root` is a chain root. Raises LocalError that names the first bad id.
    """
    _check_length("root", root, "chain_root(...)")
    tokens = token_bytes(token_ids)
    exact = blake2b(_EXACT_MAGIC + root + _hash_of(tokens), digest_size=KEY_BYTES).digest()
    return page_keys(exact, tokens, page_tokens)


def page_and_tail_keys(root: bytes, token_ids: TokenIds, page_tokens: int) -> tuple[list[bytes], bytes]:
    """As `page_keys`, with one more key for the tokens that fill no page, if there are any.

    Returns those tokens too, as u32 little-endian. Raises LocalError that names the first bad id.
    """
    tokens = token_bytes(token_ids)
    keys = page_keys(root, tokens, page_tokens)
    tail = tokens[len(keys) * page_tokens * _TOKEN_BYTES :]
    if tail:
        keys.append(blake2b((keys[-1] if keys else root) + tail, digest_size=KEY_BYTES).digest())
    return keys, tail


def content_keys(root: bytes, content: Content, pages: int = 1) -> list[bytes]:
    """Keys of the `pages` pages of one input; each stands alone.

    `content` is all that the state is computed from: the input's bytes or a hash of them and, where they matter, its
    resolution, frames and place. `root` is a content root. Raises LocalError.
    """
    _check_length("root", root, "content_root(...)")
    if not 1 <= pages <= MAX_TOKEN_ID:
        raise LocalError(f"pages is {pages}; an input has 1 to {MAX_TOKEN_ID}")
    prefix = root + _hash_of(content)
    return [
        blake2b(prefix + page.to_bytes(4, "little"), digest_size=KEY_BYTES).digest() for page in range(pages)
    ]


def _root(magic: bytes, digest: bytes, model: str, tenant: str, salt: str) -> bytes:
    _check_length("digest", digest, "descriptor.digest")
    root = blake2b(magic, digest_size=KEY_BYTES)
    for part in (digest, _utf8("model", model), _utf8("tenant", tenant), _utf8("salt", salt)):
        root.update(len(part).to_bytes(4, "little"))
        root.update(part)
    return root.digest()


def _hash_of(content: Content) -> bytes:
    buffer: Any = content  # numpy's stubs do not say that an array is one
    try:
        return blake2b(buffer, digest_size=KEY_BYTES).digest()
    except (TypeError, ValueError, BufferError) as error:
        raise LocalError(f"content cannot be hashed ({error}); pass bytes, or a contiguous array") from None


def token_bytes(token_ids: TokenIds) -> bytes:
    """The ids as consecutive u32 little-endian. Raises LocalError that names the first bad id."""
    if isinstance(token_ids, bytes | bytearray) or _is_raw(token_ids):
        return _from_bytes(bytes(token_ids))
    if isinstance(token_ids, array | memoryview) or hasattr(token_ids, "__array__"):
        return _from_array(np.asarray(token_ids))
    if not isinstance(token_ids, Iterable):
        raise LocalError(f"token_ids is {token_ids!r}; pass the ids of one sequence")
    return _from_integers(token_ids if isinstance(token_ids, list) else list(token_ids))


def _is_raw(token_ids: TokenIds) -> bool:
    """Whether a memoryview shows bytes; one of another format is an array like any other."""
    return isinstance(token_ids, memoryview) and token_ids.format == "B"


def _from_integers(ids: list[Any]) -> bytes:
    try:
        encoded = array("I", ids)  # the quickest checked conversion that Python has
    except (OverflowError, TypeError):
        _refuse_first_bad(ids)
    if sys.byteorder == "big":
        encoded.byteswap()
    return encoded.tobytes()


def _from_bytes(data: bytes) -> bytes:
    if len(data) % _TOKEN_BYTES:
        raise LocalError(f"token_ids has {len(data)} bytes; u32 little-endian ids come in multiples of 4")
    return data


def _from_array(ids: NDArray[Any]) -> bytes:
    if ids.ndim != 1:
        raise LocalError(f"token_ids has {ids.ndim} dimensions; pass the one-dimensional ids of one sequence")
    if ids.size and ids.dtype.kind not in "iu":
        raise LocalError(f"token_ids has dtype {ids.dtype}; token ids are integers")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) > MAX_TOKEN_ID):
        position = int(((ids < 0) | (ids > MAX_TOKEN_ID)).argmax())
        _refuse(position, int(ids[position]))
    return ids.astype("<u4").tobytes()


def _refuse_first_bad(ids: list[Any]) -> NoReturn:
    for position, token in enumerate(ids):
        try:
            array("I", (token,))
        except (OverflowError, TypeError):
            _refuse(position, token)
    raise AssertionError("the ids failed together although each alone does not")


def _refuse(position: int, token: object) -> NoReturn:
    raise LocalError(f"token_ids[{position}] is {token!r}; token ids are integers from 0 to {MAX_TOKEN_ID}")


def _check_length(name: str, value: bytes, source: str) -> None:
    if len(value) != KEY_BYTES:
        raise LocalError(f"{name} has {len(value)} bytes, not {KEY_BYTES}; pass {source}")


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise LocalError(f"{name} is {text!r}; pass text that UTF-8 can hold") from None
