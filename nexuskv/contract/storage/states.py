"""A state of a model program: the tensor that is kept, how long, how much of it, and whether it can be checkpointed.

Owns what a state says for itself and refuses what is wrong in it alone. Knows nothing of keys and values: what a KV
declaration demands of the states it names is `validation`.

    bytes of a tensor    its elements, and between the first and the last of them what the strides skip
    bytes of a demand    fixed_per_scope: as declared; token_scaled: bytes_per_token * maximum_tokens
"""

from math import prod
from typing import Annotated, Final

import msgspec

from nexuskv.contract.storage.form import Id, check_id, hold_to_types
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.vocabulary import (
    Contents,
    ElementType,
    Initialisation,
    InputDependency,
    Lifetime,
)
from nexuskv.contract.tensors import MAX_RANK, MAX_SIZE

Count = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_SIZE})]
_BOUND: Final = f"64 bits hold at most {MAX_SIZE}"


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a declaration: immutable, held to its types, without a field that is not its own."""

    def __post_init__(self) -> None:
        hold_to_types(self)
        self.check()

    def check(self) -> None:
        """Refuse what is wrong in this part alone; raises StorageError."""


class Contiguous(Part, frozen=True, tag="contiguous", tag_field="kind"):
    """C order, no gaps."""


class Strided(Part, frozen=True, tag="strided", tag_field="kind"):
    """Elements from one index to the next, for each dimension."""

    strides: tuple[Count, ...]

    def check(self) -> None:
        for stride in self.strides:
            if not 1 <= stride <= MAX_SIZE:
                raise refuse(Rule.STRIDE_SIZE, "strides", f"{stride} is out of bounds; use 1 to {MAX_SIZE}")


TensorLayout = Contiguous | Strided


class Tensor(Part, frozen=True):
    """One tensor; `dimensions` counts elements, the slowest dimension first."""

    dimensions: tuple[Count, ...]
    element_type: ElementType
    layout: TensorLayout

    def check(self) -> None:
        if len(self.dimensions) > MAX_RANK:
            raise refuse(
                Rule.TENSOR_RANK, "dimensions", f"{len(self.dimensions)} of them; {MAX_RANK} is the most"
            )
        for size in self.dimensions:
            if not 0 <= size <= MAX_SIZE:
                raise refuse(
                    Rule.TENSOR_DIMENSION, "dimensions", f"{size} is out of bounds; use 0 to {MAX_SIZE}"
                )
        self._check_strides()
        if self.nbytes > MAX_SIZE:
            raise refuse(Rule.TENSOR_OVERFLOW, "dimensions", f"{self.nbytes} bytes, but {_BOUND}; use less")

    def _check_strides(self) -> None:
        if isinstance(self.layout, Strided) and len(self.layout.strides) != len(self.dimensions):
            raise refuse(
                Rule.STRIDE_COUNT,
                "layout.strides",
                f"{len(self.layout.strides)} strides for {len(self.dimensions)} dimensions; give one for each",
            )

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last one's end."""
        elements = prod(self.dimensions)
        if isinstance(self.layout, Strided) and elements:
            steps = zip(self.dimensions, self.layout.strides, strict=True)
            elements = 1 + sum((size - 1) * stride for size, stride in steps)
        return elements * self.element_type.dtype.itemsize


class FixedPerScope(Part, frozen=True, tag="fixed_per_scope", tag_field="kind"):
    """So many bytes for each request, sequence or step, as the lifetime says."""

    nbytes: Count = msgspec.field(name="bytes")

    @property
    def total(self) -> int:
        """Bytes of one scope."""
        return self.nbytes

    def check(self) -> None:
        _check_demand("bytes", self.nbytes, self.total)


class TokenScaled(Part, frozen=True, tag="token_scaled", tag_field="kind"):
    """So many bytes for each token, for at most so many tokens."""

    bytes_per_token: Count
    maximum_tokens: Count

    @property
    def total(self) -> int:
        """Bytes of a scope that has all its tokens."""
        return self.bytes_per_token * self.maximum_tokens

    def check(self) -> None:
        if self.maximum_tokens < 1:
            raise refuse(
                Rule.CAPACITY_TOKENS_ZERO,
                "maximum_tokens",
                f"{self.maximum_tokens} tokens hold nothing; give the longest sequence",
            )
        _check_demand("bytes_per_token", self.bytes_per_token, self.total)


Capacity = FixedPerScope | TokenScaled


def _check_demand(field: str, size: int, total: int) -> None:
    if size < 1:
        raise refuse(Rule.CAPACITY_ZERO, field, f"a demand of {size} bytes; give what the state needs")
    if total > MAX_SIZE:
        raise refuse(Rule.CAPACITY_OVERFLOW, field, f"a demand of {total} bytes, but {_BOUND}; ask for less")


class Unsupported(Part, frozen=True, tag="unsupported", tag_field="kind"):
    """No checkpoint can be taken."""


class CompletedBoundary(Part, frozen=True, tag="completed_boundary", tag_field="kind"):
    """A checkpoint can be taken at each token boundary that the program has completed."""

    contents: Contents
    input_dependency: InputDependency


Checkpoint = Unsupported | CompletedBoundary


class State(Part, frozen=True):
    """One state; `value_id` is the program's value by which its nodes reach it."""

    id: Id
    value_id: Id
    tensor: Tensor
    lifetime: Lifetime
    initialisation: Initialisation
    capacity: Capacity
    checkpoint: Checkpoint

    def check(self) -> None:
        check_id("id", self.id)
        check_id("value_id", self.value_id)
        if self.capacity.total < self.tensor.nbytes:
            raise refuse(
                Rule.CAPACITY_BELOW_TENSOR,
                "capacity",
                f"{self.capacity.total} bytes for a tensor of {self.tensor.nbytes}; demand at least the tensor",
            )
        if isinstance(self.checkpoint, CompletedBoundary) and self.lifetime is not Lifetime.SEQUENCE:
            raise refuse(
                Rule.CHECKPOINT_LIFETIME,
                "checkpoint",
                f"a state of lifetime {self.lifetime} has no boundary to keep; use sequence, or unsupported",
            )
