"""What makes a descriptor valid once its parts meet.

Owns every check that needs more than one part, but for quantisation (`scales`). Knows no kind by name: the class
variables of a kind say what it needs. Each refusal is a DescriptorError that names the field to mend.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nexuskv.contract import scales
from nexuskv.contract.dtypes import DType
from nexuskv.contract.tensors import LAYERS, MAX_SIZE, PAGE_TOKENS, TensorSpec, check_name, check_size
from nexuskv.contract.vocabulary import Arrangement, DimensionOrder, Role
from nexuskv.errors import DescriptorError

if TYPE_CHECKING:
    from nexuskv.contract.descriptor import Descriptor

ID: Final = "[A-Za-z0-9._:/-]{1,160}"
MAX_ID_BYTES: Final = 160
MAX_TENSORS: Final = 64
MAX_PAGE_BYTES: Final = 1 << 30
"""Largest page of any descriptor; a daemon may be configured to take less, never more."""


def check(descriptor: "Descriptor") -> None:
    """Refuse a descriptor whose parts are wrong or do not fit together."""
    _check_id(descriptor.descriptor_id)
    _check_names(descriptor.tensor_specs)
    _check_roles(descriptor)
    _check_dims(descriptor)
    _check_order(descriptor)
    for index, spec in enumerate(descriptor.tensor_specs):
        _check_tensor(descriptor, f"tensor_specs[{index}]", spec)
    scales.check(descriptor)
    _check_reuse(descriptor)
    _check_size(descriptor)
    _check_stride(descriptor)


def check_page_limit(descriptor: "Descriptor", maximum: int) -> None:
    """Refuse a page of more than `maximum` bytes."""
    if descriptor.page_bytes > maximum:
        raise DescriptorError(
            "page_bytes",
            f"a page has {descriptor.page_bytes} bytes and {maximum} are allowed; use fewer tokens or layers",
        )


def in_order(axes: tuple[str, ...], order: DimensionOrder) -> tuple[str, ...]:
    """Axes given in NHD order, brought into `order`: HND has the heads before the tokens."""
    if order is DimensionOrder.NHD or axes[:1] != (PAGE_TOKENS,) or len(axes) < 3:
        return axes
    return (axes[1], axes[0], *axes[2:])


def _check_id(descriptor_id: str) -> None:
    if bad := re.search(r"[^A-Za-z0-9._:/-]", descriptor_id):
        raise DescriptorError("descriptor_id", f"{bad.group()!r} is forbidden; use [A-Za-z0-9._:/-]")
    if not 1 <= len(descriptor_id) <= MAX_ID_BYTES:
        raise DescriptorError("descriptor_id", f"{len(descriptor_id)} bytes; an id has 1 to {MAX_ID_BYTES}")


def _check_names(specs: tuple[TensorSpec, ...]) -> None:
    if len(specs) > MAX_TENSORS:
        raise DescriptorError("tensor_specs", f"{len(specs)} tensors; {MAX_TENSORS} is the most")
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise DescriptorError("tensor_specs", f"{count} tensors are named {name!r}; names are unique")


def _check_roles(descriptor: "Descriptor") -> None:
    roles = Counter(spec.role for spec in descriptor.tensor_specs)
    there = frozenset(roles) & descriptor.axes.keys()
    forms = descriptor.forms or (frozenset(descriptor.axes),)
    if descriptor.block_roles and descriptor.dims.get("top_k") == 1 and LAYERS not in descriptor.dims:
        forms += (frozenset({descriptor.block_roles[0]}),)  # a block that was cut out of a page
    # Of several forms, the one that is nearest tells best what is missing or too much.
    form = min(forms, key=lambda each: len(each ^ there))
    for role in descriptor.axes:
        needed = int(role in form)
        if roles[role] != needed:
            raise DescriptorError(
                "tensor_specs",
                f"{descriptor.semantic_type} needs {'one tensor' if needed else 'none'} of role {role},"
                f" not {roles[role]}{_alternatives(forms, descriptor.axes)}",
            )


def _alternatives(forms: tuple[frozenset[Role], ...], axes: Iterable[Role]) -> str:
    """The forms there are, where there is a choice."""
    if len(forms) == 1:
        return ""
    return "; it has " + ", or ".join("+".join(role for role in axes if role in form) for form in forms)


def _check_dims(descriptor: "Descriptor") -> None:
    used = {axis for spec in descriptor.tensor_specs for axis in spec.shape}
    for name, size in descriptor.dims.items():
        check_name("dims", name)
        check_size(f"dims.{name}", size)
        if name == PAGE_TOKENS:
            raise DescriptorError("dims.page_tokens", "layout.page_tokens binds it; leave it out of dims")
        if name not in used:
            raise DescriptorError(f"dims.{name}", "no tensor has this axis; leave it out")


def _check_order(descriptor: "Descriptor") -> None:
    """One contract, one spelling: HND is refused where there are no heads to put first."""
    order = descriptor.layout.dimension_order
    axes = descriptor.axes.values()
    if order is not DimensionOrder.NHD and all(in_order(axis, order) == axis for axis in axes):
        raise DescriptorError(
            "layout.dimension_order",
            f"{descriptor.semantic_type} has no token and head axes to swap; use NHD",
        )


def _check_tensor(descriptor: "Descriptor", field: str, spec: TensorSpec) -> None:
    sizes = descriptor.sizes
    for axis in spec.shape:
        if axis not in sizes:
            raise DescriptorError(f"{field}.shape", f"axis {axis!r} is not bound; give its size in dims")
    if spec.dtype is DType.INT4 and (not spec.shape or sizes[spec.shape[-1]] % 2):
        raise DescriptorError(f"{field}.shape", "int4 is packed two a byte: the last axis must be even")
    if spec.role is Role.SELECTOR_INDEX and spec.dtype not in (DType.INT32, DType.UINT32):
        raise DescriptorError(f"{field}.dtype", f"{spec.dtype}; block numbers are int32 or uint32")
    if spec.role is Role.SCALE:
        _check_leading(descriptor, f"{field}.shape", spec)
    elif spec.role in descriptor.axes:
        _check_axes(descriptor, f"{field}.shape", spec)
    else:
        known = ", ".join((*descriptor.axes, Role.SCALE))
        raise DescriptorError(
            f"{field}.role", f"{descriptor.semantic_type} has no {spec.role}; it has {known}"
        )


def _check_leading(descriptor: "Descriptor", field: str, spec: TensorSpec) -> None:
    """Scales are free in their inner axes, but must be cut by layers, and by units, as their payload is."""
    interleaved = descriptor.layout.arrangement is Arrangement.INTERLEAVED
    leading = descriptor.shared_axes if interleaved else tuple({LAYERS} & descriptor.dims.keys())
    if spec.shape[: len(leading)] != leading:
        raise DescriptorError(
            field, f"{list(spec.shape)} where scales of this layout begin with {list(leading)}"
        )


def _check_axes(descriptor: "Descriptor", field: str, spec: TensorSpec) -> None:
    order = descriptor.layout.dimension_order
    axes = in_order(descriptor.axes[spec.role], order)
    expected = (LAYERS, *axes) if LAYERS in descriptor.dims else axes
    if spec.shape != expected:
        raise DescriptorError(
            field, f"{list(spec.shape)} where {spec.role} in {order} order has {list(expected)}"
        )


def _check_reuse(descriptor: "Descriptor") -> None:
    if not isinstance(descriptor.reuse, descriptor.reuse_rules):
        rules = " or ".join(str(rule.__struct_config__.tag) for rule in descriptor.reuse_rules)
        raise DescriptorError("reuse", f"{descriptor.semantic_type} is restored by {rules} only")


def _check_size(descriptor: "Descriptor") -> None:
    if descriptor.page_bytes > MAX_SIZE:
        raise DescriptorError("page_bytes", "a page overflows 64 bits; mend dims or layout.page_tokens")
    check_page_limit(descriptor, MAX_PAGE_BYTES)


def _check_stride(descriptor: "Descriptor") -> None:
    declared, derived = descriptor.layout.stride_bytes, descriptor.stride_bytes
    if declared not in (None, derived):
        raise DescriptorError(
            "layout.stride_bytes",
            f"declared {declared}, but the tensors make {derived}; leave it out to derive it",
        )
