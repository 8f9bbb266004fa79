"""Whether one engine can use what another one stored: exact, convertible or incompatible, with every reason.

Owns the comparison of two physical contracts by what they mean to an engine (`conflict` compares them field by field).
Converts nothing itself. Engine family, descriptor id, granularity and permissions change no byte of a page, so they are
no reason at all.

    exact          equal digests and one model revision: the pages of one are found and read in place by the other
    convertible    the same numbers, stored otherwise: a program can make the consumer's pages out of the producer's
    incompatible   other numbers, or some that the consumer needs are missing
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from nexuskv.contract.conflict import differing_fields
from nexuskv.contract.descriptor import Descriptor
from nexuskv.contract.reuse import AllPages, LastCheckpoint, Reuse, Window
from nexuskv.contract.scales import PAYLOAD_DTYPE
from nexuskv.contract.tensors import TensorSpec
from nexuskv.contract.vocabulary import Role


class Verdict(StrEnum):
    """The worst of all reasons, or `EXACT` without any."""

    EXACT = "exact"
    CONVERTIBLE = "convertible"
    INCOMPATIBLE = "incompatible"


class Aspect(StrEnum):
    """What a reason is about."""

    KIND = "kind"
    MODEL_REVISION = "model revision"
    SHAPE = "shape"
    TENSORS = "tensors"
    DTYPE = "dtype"
    QUANTISATION = "quantisation"
    LAYOUT = "layout"
    PAGE_TOKENS = "page tokens"
    REUSE = "reuse"


class Reason(msgspec.Struct, frozen=True):
    """One difference; `convertible` says whether a program can bridge it, `sentence` how, or why not."""

    aspect: Aspect
    field: str
    producer: str
    consumer: str
    convertible: bool
    sentence: str


class Compatibility(msgspec.Struct, frozen=True):
    """The answer of `compatible`."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()


def compatible(
    producer: Descriptor, consumer: Descriptor, *, producer_model: str = "", consumer_model: str = ""
) -> Compatibility:
    """Whether pages of `producer` serve an engine that reads `consumer`; both models of one revision when left out."""
    reasons = (*_model(producer_model, consumer_model), *_contract(producer, consumer))
    if not reasons:
        return Compatibility(Verdict.EXACT)
    convertible = all(reason.convertible for reason in reasons)
    return Compatibility(Verdict.CONVERTIBLE if convertible else Verdict.INCOMPATIBLE, reasons)


def _model(producer: str, consumer: str) -> Iterator[Reason]:
    if producer != consumer:
        yield Reason(
            Aspect.MODEL_REVISION, "model", producer, consumer, convertible=False,
            sentence="other weights compute other numbers",
        )  # fmt: skip


def _contract(a: Descriptor, b: Descriptor) -> list[Reason]:
    if a.digest == b.digest:
        return []
    reasons = list(_differences(a, b))
    if not reasons:  # the same tensors and sizes, spelled in another order
        sentence = "the tensors lie in another order: copy each by its name"
        fields = ", ".join(differing_fields(a, b))
        reasons = [Reason(Aspect.LAYOUT, fields, a.digest.hex(), b.digest.hex(), True, sentence)]
    return reasons


def _differences(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    if a.semantic_type != b.semantic_type:
        yield Reason(
            Aspect.KIND, "semantic_type", a.semantic_type, b.semantic_type, convertible=False,
            sentence="another kind of state",
        )  # fmt: skip
        return  # what two kinds have inside is not to be compared
    yield from _dims(a, b)
    yield from _tensors(a, b)
    yield from _quantization(a, b)
    yield from _layout(a, b)
    yield from _page_tokens(a, b)
    yield from _reuse(a.reuse, b.reuse)


def _dims(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    """Sizes that follow from what is quantised, or from tensors that one of both lacks, are said there."""
    used = {axis for spec in _payloads(b).values() for axis in spec.shape}
    used |= {axis for spec in _payloads(a).values() for axis in spec.shape if spec.role in _payloads(b)}
    for name in sorted(used & (a.dims.keys() | b.dims.keys())):
        left, right = a.dims.get(name), b.dims.get(name)
        if left != right and name not in _follows_page_tokens(a, b):
            yield Reason(
                Aspect.SHAPE, f"dims.{name}", str(left), str(right), convertible=False,
                sentence="the model has other dimensions, or other layers of it are stored",
            )  # fmt: skip


def _follows_page_tokens(a: Descriptor, b: Descriptor) -> frozenset[str]:
    """Axes that count parts of a page: with longer pages there are more of them."""
    if a.block_roles is None or a.page_tokens == b.page_tokens:
        return frozenset()
    return frozenset(
        name
        for name in ("top_k", "summary_blocks")
        if a.dims.get(name, 0) * b.page_tokens == b.dims.get(name, 0) * a.page_tokens
    )


def _payloads(descriptor: Descriptor) -> dict[Role, TensorSpec]:
    return {spec.role: spec for spec in descriptor.tensor_specs if spec.role is not Role.SCALE}


def _tensors(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    ours, theirs = _payloads(a), _payloads(b)
    for role in ours.keys() | theirs.keys():
        if role not in ours:
            yield Reason(
                Aspect.TENSORS, "tensor_specs", "", role, convertible=False,
                sentence=f"the consumer needs a {role}, and the producer stores none",
            )  # fmt: skip
        elif role not in theirs:
            yield Reason(
                Aspect.TENSORS, "tensor_specs", role, "", convertible=True,
                sentence=f"the consumer has no use for the {role}: leave it out",
            )  # fmt: skip
        else:
            yield from _tensor(a, ours[role], b, theirs[role])


def _tensor(a: Descriptor, ours: TensorSpec, b: Descriptor, theirs: TensorSpec) -> Iterator[Reason]:
    if ours.name != theirs.name:
        yield Reason(
            Aspect.TENSORS, f"{ours.role}.name", ours.name, theirs.name, convertible=True,
            sentence="the same tensor has another name",
        )  # fmt: skip
    quantised = _is_quantised(a, ours) or _is_quantised(b, theirs)
    if ours.dtype is not theirs.dtype and not quantised:
        yield Reason(
            Aspect.DTYPE, f"{ours.role}.dtype", ours.dtype, theirs.dtype, convertible=True,
            sentence="convert each number; a narrower type loses precision",
        )  # fmt: skip


def _is_quantised(descriptor: Descriptor, spec: TensorSpec) -> bool:
    return spec.dtype is PAYLOAD_DTYPE.get(descriptor.quantization.scheme)


def _quantization(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    ours, theirs = a.quantization.scheme, b.quantization.scheme
    if ours is not theirs:
        yield Reason(
            Aspect.QUANTISATION, "quantization.scheme", ours, theirs, convertible=True,
            sentence="decode with the producer's scales, and encode anew unless the scheme is none",
        )  # fmt: skip
    elif _scales(a) != _scales(b):
        yield Reason(
            Aspect.QUANTISATION, "quantization.scale_tensors", str(_scales(a)), str(_scales(b)), convertible=True,
            sentence="other numbers share a scale: decode, and encode anew",
        )  # fmt: skip


def _scales(descriptor: Descriptor) -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, type and axes of each, with the size of an axis that no payload has: sizes of the others are said there."""
    common = {axis for spec in _payloads(descriptor).values() for axis in spec.shape}
    sizes = {axis: f"{axis}={size}" for axis, size in descriptor.sizes.items() if axis not in common}
    return [
        (spec.name, spec.dtype.value, tuple(sorted(sizes.get(axis, axis) for axis in spec.shape)))
        for spec in descriptor.tensor_specs
        if spec.role is Role.SCALE
    ]


def _layout(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    for field in ("arrangement", "dimension_order"):
        ours, theirs = getattr(a.layout, field), getattr(b.layout, field)
        if ours is not theirs:
            yield Reason(
                Aspect.LAYOUT, f"layout.{field}", ours, theirs, convertible=True,
                sentence="the same numbers in another order: copy each tensor by its name",
            )  # fmt: skip
    common = _payloads(a).keys() & _payloads(b).keys()
    ours, theirs = ([role for role in _payloads(d) if role in common] for d in (a, b))
    if ours != theirs:
        yield Reason(
            Aspect.LAYOUT, "tensor_specs", ", ".join(ours), ", ".join(theirs), convertible=True,
            sentence="the tensors follow each other in another order: copy each by its name",
        )  # fmt: skip


def _page_tokens(a: Descriptor, b: Descriptor) -> Iterator[Reason]:
    ours, theirs = a.page_tokens, b.page_tokens
    if ours == theirs:
        return
    if a.content_keyed:
        convertible, sentence = False, "another input, or another part of it, makes a page"
    elif isinstance(a.reuse, LastCheckpoint):
        convertible = theirs % ours == 0
        sentence = (
            "take those checkpoints that lie on the consumer's boundaries"
            if convertible
            else "most of the consumer's boundaries have no checkpoint"
        )
    else:
        convertible, sentence = True, "cut the tokens anew, as far as whole pages of the consumer are full"
    yield Reason(
        Aspect.PAGE_TOKENS,
        "layout.page_tokens",
        str(ours),
        str(theirs),
        convertible=convertible,
        sentence=sentence,
    )


def _reuse(ours: Reuse, theirs: Reuse) -> Iterator[Reason]:
    if ours == theirs:
        return
    enough = isinstance(ours, AllPages) or (
        isinstance(ours, Window) and isinstance(theirs, Window) and theirs.tokens <= ours.tokens
    )
    yield Reason(
        Aspect.REUSE, "reuse", _rule(ours), _rule(theirs), convertible=enough,
        sentence="what is resident is enough; give the pages the consumer's keys"
        if enough
        else "the producer keeps fewer pages than the consumer needs",
    )  # fmt: skip


def _rule(reuse: Reuse) -> str:
    tag = str(reuse.__struct_config__.tag)
    return f"{tag}({reuse.tokens})" if isinstance(reuse, Window) else tag
