"""What makes a descriptor valid once its parts meet.

Owns every check that needs more than one field, and the sentence of each refusal. Knows no kind by name: the kind's own
class variables say what it needs. Each refusal is a DescriptorError that names the field to mend.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, get_type_hints

import msgspec

from nexuskv.contract import faults
from nexuskv.contract.dtypes import DType
from nexuskv.contract.tensors import MAX_TENSORS, PAGE_TOKENS, PAYLOAD_DTYPE, TensorSpec, check_name
from nexuskv.contract.vocabulary import Arrangement, DimensionOrder, Role, Scheme
from nexuskv.errors import DescriptorError

if TYPE_CHECKING:
    from nexuskv.contract.descriptor import Descriptor

ID_PATTERN: Final = r"^[A-Za-z0-9._:/-]{1,160}$"
MAX_ID_BYTES: Final = 160
MAX_SIZE: Final = 2**63 - 1
"""Sizes and offsets are signed 64-bit wherever a file is mapped."""
MAX_PAGE_BYTES: Final = 1 << 30
"""Largest page of any descriptor; a daemon may be configured to take less, never more."""
LAYERS: Final = "layers"
SCALE_DTYPES: Final = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})


def normalise(descriptor: "Descriptor") -> None:
    """Bring each field to its declared type, so that a descriptor built in code equals its decoded twin."""
    hints = get_type_hints(type(descriptor), include_extras=True)
    for name in descriptor.__struct_fields__:
        with faults.named(name):
            value = msgspec.convert(getattr(descriptor, name), hints[name])
        msgspec.structs.force_setattr(descriptor, name, value)


def check(descriptor: "Descriptor") -> None:
    """Refuse a descriptor whose parts are wrong or do not fit together."""
    _check_id(descriptor.descriptor_id)
    _check_dims(descriptor)
    _check_tensors(descriptor)
    _check_quantization(descriptor)
    _check_reuse(descriptor)
    _check_arrangement(descriptor)
    _check_size(descriptor)


def check_page_limit(descriptor: "Descriptor", maximum: int) -> None:
    """Refuse a page of more than `maximum` bytes."""
    if descriptor.page_bytes > maximum:
        raise DescriptorError(
            "page_bytes",
            f"a page has {descriptor.page_bytes} bytes and {maximum} are allowed; use fewer tokens or layers a page",
        )


def declare_stride(descriptor: "Descriptor", derived: int) -> None:
    """Fill in the stride that was left out; refuse a declared one that the tensors do not make."""
    declared = descriptor.layout.stride_bytes
    if declared is not None and declared != derived:
        raise DescriptorError(
            "layout.stride_bytes", f"declared {declared}, but the tensors make {derived}; leave it out to derive it"
        )
    layout = msgspec.structs.replace(descriptor.layout, stride_bytes=derived)
    msgspec.structs.force_setattr(descriptor, "layout", layout)


def sizes(descriptor: "Descriptor") -> dict[str, int]:
    """Every dimension name that a shape may use, with its size."""
    return {**descriptor.dims, PAGE_TOKENS: descriptor.page_tokens}


def shared_axes(descriptor: "Descriptor") -> tuple[str, ...]:
    """The interleaved axes that this descriptor has: `layers` may be left out."""
    return tuple(axis for axis in descriptor.interleaved_axes if axis != LAYERS or LAYERS in descriptor.dims)


def _check_id(descriptor_id: str) -> None:
    if not 1 <= len(descriptor_id.encode()) <= MAX_ID_BYTES:
        raise DescriptorError(
            "descriptor_id", f"{len(descriptor_id.encode())} bytes; an id has 1 to {MAX_ID_BYTES}"
        )
    if bad := re.search(r"[^A-Za-z0-9._:/-]", descriptor_id):
        raise DescriptorError("descriptor_id", f"{bad.group()!r} is forbidden; use [A-Za-z0-9._:/-]")


def _check_dims(descriptor: "Descriptor") -> None:
    used = {axis for spec in descriptor.tensor_specs for axis in spec.shape}
    for name, size in descriptor.dims.items():
        check_name(f"dims.{name}", name)
        if not 1 <= size <= MAX_SIZE:
            raise DescriptorError(f"dims.{name}", f"{size} is no size; a dimension is 1 to {MAX_SIZE}")
        if name == PAGE_TOKENS:
            raise DescriptorError("dims.page_tokens", "bound by layout.page_tokens; leave it out of dims")
        if name not in used:
            raise DescriptorError(f"dims.{name}", "no tensor has this axis; leave it out")


def _check_tensors(descriptor: "Descriptor") -> None:
    specs = descriptor.tensor_specs
    if len(specs) > MAX_TENSORS:
        raise DescriptorError("tensor_specs", f"{len(specs)} tensors; {MAX_TENSORS} is the most")
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise DescriptorError("tensor_specs", f"{count} tensors are named {name!r}; names are unique")
    for index, spec in enumerate(specs):
        _check_bound(descriptor, f"tensor_specs[{index}]", spec)
        _check_axes(descriptor, f"tensor_specs[{index}]", spec)
    roles = Counter(spec.role for spec in specs)
    for role in descriptor.axes:
        if roles[role] != 1:
            raise DescriptorError(
                "tensor_specs", f"{descriptor.semantic_type} has one tensor of role {role}, not {roles[role]}"
            )


def _check_bound(descriptor: "Descriptor", field: str, spec: TensorSpec) -> None:
    bound = sizes(descriptor)
    for axis in spec.shape:
        if axis not in bound:
            raise DescriptorError(f"{field}.shape", f"axis {axis!r} is not bound; give its size in dims")
    if spec.dtype is DType.INT4 and (not spec.shape or bound[spec.shape[-1]] % 2):
        raise DescriptorError(f"{field}.shape", "int4 is packed two a byte: the last axis must be even")


def _check_axes(descriptor: "Descriptor", field: str, spec: TensorSpec) -> None:
    if spec.role is Role.SCALE:
        return
    if spec.role not in descriptor.axes:
        raise DescriptorError(
            f"{field}.role",
            f"{descriptor.semantic_type} has no {spec.role}; it has {', '.join(descriptor.axes)} and SCALE",
        )
    expected = expected_axes(descriptor, spec.role)
    if spec.shape != expected:
        raise DescriptorError(
            f"{field}.shape",
            f"{list(spec.shape)} where {spec.role} in {descriptor.layout.dimension_order} order"
            f" has {list(expected)}",
        )


def expected_axes(descriptor: "Descriptor", role: Role) -> tuple[str, ...]:
    """Axes of a role in this descriptor's dimension order, `layers` first where it is bound."""
    axes = in_order(descriptor.axes[role], descriptor.layout.dimension_order)
    return (LAYERS, *axes) if LAYERS in descriptor.dims else axes


def in_order(axes: tuple[str, ...], order: DimensionOrder) -> tuple[str, ...]:
    """Axes given in NHD order, brought into `order`: HND puts the heads before the tokens."""
    if order is DimensionOrder.NHD or axes[:1] != (PAGE_TOKENS,) or len(axes) < 3:
        return axes
    return (axes[1], axes[0], *axes[2:])


def _check_quantization(descriptor: "Descriptor") -> None:
    scheme = descriptor.quantization.scheme
    scales = tuple(spec.name for spec in descriptor.tensor_specs if spec.role is Role.SCALE)
    if scheme not in descriptor.schemes:
        raise DescriptorError(
            "quantization.scheme", f"{descriptor.semantic_type} knows no {scheme}; use {_list(descriptor.schemes)}"
        )
    if tuple(descriptor.quantization.scale_tensors) != scales:
        raise DescriptorError(
            "quantization.scale_tensors",
            f"{list(descriptor.quantization.scale_tensors)} declared, but the tensors of role SCALE are {list(scales)}",
        )
    if (scheme is Scheme.NONE) != (not scales):
        raise DescriptorError(
            "quantization.scale_tensors",
            "scale tensors without a scheme; name the scheme" if scales else f"{scheme} needs its scale tensors",
        )
    if scheme is not Scheme.NONE:
        _check_scales(descriptor)


def _check_scales(descriptor: "Descriptor") -> None:
    scheme = descriptor.quantization.scheme
    payloads = [spec for spec in descriptor.tensor_specs if spec.dtype is PAYLOAD_DTYPE[scheme]]
    scales = [spec for spec in descriptor.tensor_specs if spec.role is Role.SCALE]
    if len(payloads) != len(scales):
        raise DescriptorError(
            "quantization.scale_tensors",
            f"{len(scales)} for {len(payloads)} tensors of dtype {PAYLOAD_DTYPE[scheme]}; each has one",
        )
    for payload, scale in zip(payloads, scales, strict=True):
        _check_scale(descriptor, payload, scale)


def _check_scale(descriptor: "Descriptor", payload: TensorSpec, scale: TensorSpec) -> None:
    field = f"tensor_specs[{descriptor.tensor_specs.index(scale)}]"
    if scale.dtype not in SCALE_DTYPES:
        raise DescriptorError(f"{field}.dtype", f"a scale is {_list(SCALE_DTYPES)}, not {scale.dtype}")
    if descriptor.quantization.scheme is not Scheme.INT8_PER_TOKEN_HEAD:
        return
    if scale.dtype is not DType.FLOAT32:
        raise DescriptorError(f"{field}.dtype", f"{descriptor.quantization.scheme} has float32 scales")
    if scale.shape != payload.shape[:-1]:
        raise DescriptorError(
            f"{field}.shape", f"{list(scale.shape)} where {payload.name!r} has a scale for each of {list(payload.shape[:-1])}"
        )


def _check_reuse(descriptor: "Descriptor") -> None:
    if not isinstance(descriptor.reuse, descriptor.reuse_rules):
        rules = _list(str(rule.__struct_config__.tag) for rule in descriptor.reuse_rules)
        raise DescriptorError("reuse", f"{descriptor.semantic_type} pages are reused by {rules} only")


def _check_arrangement(descriptor: "Descriptor") -> None:
    if descriptor.layout.arrangement is Arrangement.SEPARATE:
        return
    shared = shared_axes(descriptor)
    for index, spec in enumerate(descriptor.tensor_specs):
        if spec.shape[: len(shared)] != shared:
            raise DescriptorError(
                f"tensor_specs[{index}].shape", f"interleaved tensors of this kind begin with {list(shared)}"
            )


def _check_size(descriptor: "Descriptor") -> None:
    if descriptor.page_bytes > MAX_SIZE:
        raise DescriptorError("page_bytes", "the size of a page overflows 64 bits; check dims and layout.page_tokens")
    check_page_limit(descriptor, MAX_PAGE_BYTES)


def _list(words: object) -> str:
    return ", ".join(sorted(str(word) for word in words))  # type: ignore[attr-defined]
