"""What the compatibility flags of a descriptor permit: the rule of each flag, and the refusal that names it.

Owns the four rules. A flag that is left out takes something away. Flags change no byte of a page and no digest, so each
engine is held to the flags of the descriptor that it opened itself, whoever else shares the pages.

    EXACT_REUSE       pages serve the input that they were computed from: all of them, or none
    PREFIX_REUSE      and every input that begins as it does: the longest boundary that is there
    COW_BRANCH        contexts may be branched: opened, forked, attached to
    ZERO_COPY_RDMA    pages may come from other hosts by RDMA, out of the arena there into the one here
"""

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.vocabulary import Flag
from nexuskv.errors import FlagMissing

RDMA = "rdma"


def require_reuse(descriptor: Descriptor) -> None:
    """Raises FlagMissing where no page may be read that another request left."""
    if not descriptor.compatibility_flags & {Flag.EXACT_REUSE, Flag.PREFIX_REUSE}:
        _refuse(descriptor, f"{Flag.EXACT_REUSE} and {Flag.PREFIX_REUSE}", "its pages are not reused")


def require_prefix_reuse(descriptor: Descriptor) -> None:
    """Raises FlagMissing where a part of what was asked for is of no use."""
    if Flag.PREFIX_REUSE not in descriptor.compatibility_flags:
        _refuse(descriptor, Flag.PREFIX_REUSE, "no group can find a prefix of it")


def require_branching(descriptor: Descriptor) -> None:
    """Raises FlagMissing where contexts are not to be branched."""
    if Flag.COW_BRANCH not in descriptor.compatibility_flags:
        _refuse(descriptor, Flag.COW_BRANCH, "its contexts cannot be branched")


def is_whole_or_nothing(descriptor: Descriptor) -> bool:
    """Whether pages are of use for their own input only, and only if all of them are there.

    Their keys have the whole input in them (`keys.exact_keys`). A page that is found by its content is in itself all of
    what it was computed from: EXACT_REUSE serves it alone.
    """
    alone = {Flag.EXACT_REUSE, Flag.PREFIX_REUSE} if descriptor.content_keyed else {Flag.PREFIX_REUSE}
    return not descriptor.compatibility_flags & alone


def may_travel(descriptor: Descriptor, scheme: str) -> bool:
    """Whether pages may come from another host over a transport of that scheme."""
    return scheme != RDMA or Flag.ZERO_COPY_RDMA in descriptor.compatibility_flags


def _refuse(descriptor: Descriptor, flags: str, consequence: str) -> None:
    raise FlagMissing(
        f"{descriptor.descriptor_id} has no {flags} among its compatibility_flags, so {consequence}: declare it, under "
        "another id if this one is registered already"
    )
