"""Whether a model program finds its keys and values declared: coverage.

Owns the table of operations that read them, as data, and the check of a program against a profile. Knows nothing of
what an operation computes; those that the table does not list are passed over. To extend it, pass
`{**OPERATIONS, "operation.mine": F16Ports(payload=8)}`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from nexuskv.contract.storage.declarations import Declaration, Profile
from nexuskv.contract.storage.form import Id, check_id, within
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.states import Part
from nexuskv.contract.storage.validation import validate
from nexuskv.contract.storage.vocabulary import Format

Port = Annotated[int, msgspec.Meta(ge=0)]
"""Place of an input of an operation, the first being 0."""


class Node(Part, frozen=True):
    """One node of a program; `inputs` are value ids, by port."""

    id: Id
    operation: Id
    inputs: tuple[Id, ...] = ()

    def check(self) -> None:
        check_id("id", self.id)
        check_id("operation", self.operation)
        for port, value in enumerate(self.inputs):
            check_id(f"inputs[{port}]", value)


class Program(Part, frozen=True):
    """The nodes of a model program, in any order."""

    nodes: tuple[Node, ...]

    def check(self) -> None:
        for node, count in Counter(node.id for node in self.nodes).items():
            if count > 1:
                raise refuse(Rule.NODE_ID_TWICE, "nodes", f"{count} have the id {node!r}; give each its own")


class F16Ports(Part, frozen=True, tag=Format.F16.value, tag_field="format"):
    """An operation that reads F16 keys and values at one input."""

    payload: Port

    @property
    def ports(self) -> tuple[int, ...]:
        """The inputs that take a declaration's states, in their order."""
        return (self.payload,)

    @property
    def format(self) -> Format:
        return Format.F16


class Int8Ports(Part, frozen=True, tag=Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1.value, tag_field="format"):
    """An operation that reads I8 keys and values at one input and their scales at another."""

    payload: Port
    scales: Port

    def check(self) -> None:
        if self.payload == self.scales:
            raise refuse(
                Rule.TABLE_PORTS, "scales", f"input {self.scales} takes the payload; give another one"
            )

    @property
    def ports(self) -> tuple[int, ...]:
        """The inputs that take a declaration's states, in their order."""
        return self.payload, self.scales

    @property
    def format(self) -> Format:
        return Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1


Ports = F16Ports | Int8Ports

OPERATIONS: Final[Mapping[str, Ports]] = MappingProxyType(
    {
        "operation.causal_paged_attention": F16Ports(payload=8),
        "operation.causal_paged_attention.f32-master": F16Ports(payload=8),
        "operation.hybrid_vnorm_causal_paged_attention": F16Ports(payload=8),
        "operation.gpt_oss.causal_paged_attention": F16Ports(payload=11),
        "operation.causal_paged_attention.int8-kv": Int8Ports(payload=8, scales=9),
        "operation.causal_paged_attention.f32-master.int8-kv": Int8Ports(payload=8, scales=9),
    }
)
"""The operations that read declared keys and values, and at which inputs."""


def check_coverage(
    profile: Profile, program: Program, operations: Mapping[str, Ports] = OPERATIONS
) -> Format | None:
    """The profile's format, once each operation finds its states and each declaration its operation.

    Raises StorageError, also for a profile that is not valid by itself.
    """
    storage = validate(profile)
    consumed = set(_consumed(profile, program, operations))
    for index, declaration in enumerate(profile.kv_storage):
        if declaration.payload not in consumed:
            raise refuse(
                Rule.DECLARATION_UNCONSUMED,
                f"kv_storage[{index}]",
                f"no operation reads {declaration.payload!r}; leave it out, or extend the table of operations",
            )
    return storage


def _consumed(profile: Profile, program: Program, operations: Mapping[str, Ports]) -> Iterator[str]:
    """The payload state of each node that the table lists."""
    values = _Values(profile)
    for index, node in enumerate(program.nodes):
        if (ports := operations.get(node.operation)) is not None:
            with within(f"nodes[{index}]"):
                yield values.consumed_by(node, ports)


class _Values:
    """A profile's declarations by the values through which a program reaches their states."""

    def __init__(self, profile: Profile) -> None:
        states = profile.by_id
        self._declared: dict[str, tuple[Declaration, int]] = {
            states[state].value_id: (declaration, place)
            for declaration in profile.kv_storage
            for place, state in enumerate(declaration.states)
        }
        """The declaration and which of its states it is: 0 the payload, 1 the scales."""

    def consumed_by(self, node: Node, ports: Ports) -> str:
        """Id of the payload state that `node` reads; all its ports are checked."""
        for port in ports.ports:
            if port >= len(node.inputs):
                raise refuse(
                    Rule.PORT_MISSING,
                    "inputs",
                    f"{len(node.inputs)} of them, but {node.operation} has a state at {port}; connect it",
                )
        declaration = self._payload(node, ports)
        for place, port in enumerate(ports.ports[1:], start=1):
            self._check_scales(node, port, declaration, place)
        return declaration.payload

    def _payload(self, node: Node, ports: Ports) -> Declaration:
        value = node.inputs[ports.payload]
        field = f"inputs[{ports.payload}]"
        if value not in self._declared:
            raise refuse(
                Rule.PAYLOAD_UNDECLARED,
                field,
                f"{value!r} holds no declared keys and values; declare its state",
            )
        declaration, place = self._declared[value]
        if place:
            raise refuse(
                Rule.PORT_CONFLICT, field, f"{value!r} holds scales where {node.operation} takes the payload"
            )
        if declaration.format is not ports.format:
            raise refuse(
                Rule.FORMAT_CONFLICT,
                field,
                f"{value!r} is declared {declaration.format} where {node.operation} takes {ports.format}; "
                "declare that, or use the operation for the other",
            )
        return declaration

    def _check_scales(self, node: Node, port: int, declaration: Declaration, place: int) -> None:
        value = node.inputs[port]
        if value not in self._declared:
            raise refuse(
                Rule.SCALES_UNDECLARED,
                f"inputs[{port}]",
                f"{value!r} holds no declared scales; declare its state",
            )
        if self._declared[value] != (declaration, place):
            raise refuse(
                Rule.PORT_CONFLICT,
                f"inputs[{port}]",
                f"{value!r} does not hold the scales of {declaration.payload!r}; connect those",
            )
