"""How much smaller one kind of state is than another, a token and a whole context.

Owns the formulas. Knows nothing of models; it compares what two descriptors store.
"""

from math import prod

from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.reuse import AllPages, LastCheckpoint, Window
from nexuskv.errors import LocalError


def saving(reference: Descriptor, candidate: Descriptor, *, candidate_bits: float | None = None) -> float:
    """Share of the reference's bits a token that the candidate does without: 0.9 is a tenth of the size.

    `candidate_bits` replaces the width of the candidate's elements, for caches whose mean width no dtype has:
    DeepSeek-V2 stores 6 bits (arXiv 2405.04434, section 3.2.3). Alignment is not counted.
    """
    return 1 - _bits_per_token(candidate, candidate_bits) / _bits_per_token(reference)


def context_bytes(descriptor: Descriptor, tokens: int) -> int:
    """Bytes that must be resident to go on after `tokens` tokens: whole pages, those that the reuse rule needs.

    Raises LocalError for less than one token.
    """
    if tokens < 1:
        raise LocalError(f"a context of {tokens} tokens has no state: give 1 or more")
    return _pages(descriptor, tokens) * descriptor.page_bytes


def context_saving(reference: Descriptor, candidate: Descriptor, tokens: int) -> float:
    """Share of the reference's bytes of a context of `tokens` tokens that the candidate does without.

    Unlike `saving` it holds for windows and checkpoints, which cost less a token the longer the context is. Raises
    LocalError for less than one token.
    """
    return 1 - context_bytes(candidate, tokens) / context_bytes(reference, tokens)


def _pages(descriptor: Descriptor, tokens: int) -> int:
    match descriptor.reuse:
        case AllPages():
            return -(-tokens // descriptor.page_tokens)
        case LastCheckpoint():
            return 1
        case Window():
            return -(-min(tokens, descriptor.reuse.tokens) // descriptor.page_tokens)


def _bits_per_token(descriptor: Descriptor, element_bits: float | None = None) -> float:
    """Bits of all tensors a token, each element taken as stored or as `element_bits` wide."""
    if element_bits is None:
        bits: float = 8 * sum(tensor.nbytes for tensor in descriptor.bound_tensors)
    else:
        bits = element_bits * sum(prod(tensor.shape) for tensor in descriptor.bound_tensors)
    return bits / descriptor.page_tokens
