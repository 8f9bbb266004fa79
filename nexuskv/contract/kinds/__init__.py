"""The kinds of state that this version knows: the tagged union that decoding and the JSON Schema are built from.

A new kind is one file here (its struct, its constructor) and one member of `AnyDescriptor`; nothing else lists kinds.
"""

from typing import TypeAlias

from nexuskv.contract.kinds.mamba2 import SsmMamba2, mamba2
from nexuskv.contract.kinds.mha import MhaKv, mha
from nexuskv.contract.kinds.mla import MlaLatent, mla

AnyDescriptor: TypeAlias = MhaKv | MlaLatent | SsmMamba2

__all__ = ["AnyDescriptor", "MhaKv", "MlaLatent", "SsmMamba2", "mamba2", "mha", "mla"]
