"""The suite `contract`: what an engine pays to name, quantise, group and fork its state.

Owns what is promised: names, bounds, and what each figure means. How each is measured is in the module of its group.
"""

from nexuskv.bench import digests, fork, group_match, keying, quantising
from nexuskv.bench.figures import Definition, Readings
from nexuskv.bench.suite import Effort, Suite, Tell

PASSES = "against the same arithmetic as bare numpy passes into the same memory"

DEFINITIONS = (
    Definition(
        "descriptor_digest",
        "ms",
        "<=",
        1,
        "build, check, lay out and digest the first descriptor of a process, of a 61-layer model; median",
    ),
    Definition(
        "page_keys",
        "M tokens/s",
        ">=",
        0.5,
        "keys of the pages of 131,072 tokens, against bare hashlib.blake2b calls over the same bytes",
    ),
    Definition("int8_quantize", "GB/s", ">=", 0.5, f"quantise float32 per token and head, {PASSES}"),
    Definition("int8_dequantize", "GB/s", ">=", 0.5, f"back to float32, {PASSES}"),
    *group_match.DEFINITIONS,
    *fork.DEFINITIONS,
)


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Measures group after group."""
    for group in (digests, keying, quantising, group_match, fork):
        group.measure(effort, readings, tell)


SUITE = Suite(
    "contract", "descriptors, page keys and quantisation; groups and branches", DEFINITIONS, measure
)
