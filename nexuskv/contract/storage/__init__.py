"""KV storage declarations: how a model family says in which states it keeps keys and values, and in which format.

Gathers the public names. Nothing is inferred from names or tensor shapes: what is not declared is refused, by
StorageError with the rule that was broken and the field to mend.
"""

from nexuskv.contract.storage.codec import from_json, to_json
from nexuskv.contract.storage.declarations import F16, Declaration, Int8, Profile
from nexuskv.contract.storage.describe import arena_bytes, describe
from nexuskv.contract.storage.family import Automatic, Family, Required, Selection, candidates
from nexuskv.contract.storage.program import (
    OPERATIONS,
    F16Ports,
    Int8Ports,
    Node,
    Ports,
    Program,
    check_coverage,
)
from nexuskv.contract.storage.rules import Rule
from nexuskv.contract.storage.states import (
    Capacity,
    Checkpoint,
    CompletedBoundary,
    Contiguous,
    FixedPerScope,
    State,
    Strided,
    Tensor,
    TensorLayout,
    TokenScaled,
    Unsupported,
)
from nexuskv.contract.storage.validation import validate
from nexuskv.contract.storage.vocabulary import (
    Contents,
    ElementType,
    Format,
    Initialisation,
    InputDependency,
    Lifetime,
)

__all__ = [
    "F16",
    "OPERATIONS",
    "Automatic",
    "Capacity",
    "Checkpoint",
    "CompletedBoundary",
    "Contents",
    "Contiguous",
    "Declaration",
    "ElementType",
    "F16Ports",
    "Family",
    "FixedPerScope",
    "Format",
    "Initialisation",
    "InputDependency",
    "Int8",
    "Int8Ports",
    "Lifetime",
    "Node",
    "Ports",
    "Profile",
    "Program",
    "Required",
    "Rule",
    "Selection",
    "State",
    "Strided",
    "Tensor",
    "TensorLayout",
    "TokenScaled",
    "Unsupported",
    "arena_bytes",
    "candidates",
    "check_coverage",
    "describe",
    "from_json",
    "to_json",
    "validate",
]
