"""Messages that ask for parts of what other hosts have: blocks of pages, and boundaries of groups.

Owns their wire form, which is that of `messages.py`; both are answered as `hosts.Fetch` is.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from nexuskv.contract.descriptor import DescriptorId
from nexuskv.protocol.messages import KEY_BYTES, MAX_KEYS, MAX_MEMBERS, U32, Key, Message


class BlockName(msgspec.Struct, array_like=True, frozen=True):
    """One block: the key of its page, and its number there (`contract/blocks.py`)."""

    page: Key
    number: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class FetchBlocks(Message, frozen=True, tag="fetch_blocks"):
    """Asks that just these blocks be pulled from another host, each to become a page of its own; as `Fetch` otherwise.

    `descriptor` is the id of that of their pages, `layer` is 0 where these have one only. Answered with `Fetched`,
    which counts blocks.
    """

    descriptor: DescriptorId
    layer: U32
    wanted: Annotated[list[BlockName], Meta(max_length=MAX_KEYS)]
    milliseconds: U32


class MemberKeys(msgspec.Struct, array_like=True, frozen=True):
    """One member's keys in `FetchGroup`, as many for each boundary; `parent` as in `Fetch`."""

    descriptor: DescriptorId
    keys: Annotated[list[Key], Meta(min_length=1, max_length=MAX_KEYS)]
    parent: Annotated[bytes, Meta(max_length=KEY_BYTES)]


class FetchGroup(Message, frozen=True, tag="fetch_group"):
    """Asks for the largest of `boundaries` boundaries that another host has, to be committed as a whole.

    MAX_KEYS keys at most, of all members together. Answered with `Fetched`, which counts pages of all members.
    """

    boundaries: Annotated[int, Meta(ge=1, le=MAX_KEYS)]
    members: Annotated[list[MemberKeys], Meta(min_length=1, max_length=MAX_MEMBERS)]
    milliseconds: U32
