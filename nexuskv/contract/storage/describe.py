"""From a declaration to the descriptor of its pages, and to the bytes of the arena that holds them.

Owns the step from one token to a page of S tokens. Knows nothing of programs or daemons.

    payload [2, heads, head_dim]   ->  key, value              [layers, S, heads, head_dim]
    scales  [2, heads]             ->  key_scale, value_scale  [layers, S, heads]

Several declarations of one geometry are the layers of one page, in their order: pages that are found under one key must
hold all that the key stands for. A single declaration has no `layers` axis.
"""

from collections.abc import Sequence

from nexuskv.contract.kinds import MhaKv, build, mha
from nexuskv.contract.placement import slot_bytes
from nexuskv.contract.storage.declarations import Declaration, Profile
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.states import Checkpoint, CompletedBoundary
from nexuskv.contract.storage.validation import PAYLOAD_TYPE, maximum_tokens, validate
from nexuskv.contract.storage.vocabulary import Format, InputDependency
from nexuskv.contract.vocabulary import Flag, Scheme
from nexuskv.errors import LocalError

_SCHEMES = {
    Format.F16: Scheme.NONE,
    Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1: Scheme.INT8_PER_TOKEN_HEAD,
}


def describe(
    profile: Profile,
    descriptor_id: str,
    *,
    page_tokens: int,
    engine_family: str,
    declarations: Sequence[Declaration] | None = None,
) -> MhaKv:
    """Descriptor of pages of `page_tokens` tokens: of the declarations given, or of all that the profile has.

    How it may be reused follows from the checkpoint that the states declare, the strictest of all: not at all without
    one, by the same whole input where it depends on that (EXACT_REUSE), else by whatever begins as it does.
    Raises StorageError for a profile that is not valid or declarations that make no page; DescriptorError for a page
    that no descriptor can have.
    """
    storage, chosen = _chosen(profile, declarations)
    heads, head_dim = _geometry(profile, chosen)
    _check_page_tokens(profile, chosen, page_tokens)
    return mha(
        descriptor_id,
        layers=len(chosen) if len(chosen) > 1 else None,
        kv_heads=heads,
        head_dim=head_dim,
        page_tokens=page_tokens,
        dtype=PAYLOAD_TYPE[storage].dtype,
        quantization=_SCHEMES[storage],
        engine_family=engine_family,
        compatibility_flags=_flags(profile, chosen),
    )


def arena_bytes(descriptor: MhaKv, profile: Profile, *, sequences: int = 1) -> int:
    """Bytes of slots in which `sequences` sequences of the profile's maximum tokens have room, none shared.

    Raises StorageError for a profile without keys and values, LocalError for less than one sequence.
    """
    if sequences < 1:
        raise LocalError(f"an arena for {sequences} sequences: give 1 or more")
    _, chosen = _chosen(profile, None)
    longest = max(_tokens(profile, declaration) for declaration in chosen)
    return sequences * -(-longest // descriptor.page_tokens) * slot_bytes(descriptor.page_bytes)


def _chosen(
    profile: Profile, declarations: Sequence[Declaration] | None
) -> tuple[Format, tuple[Declaration, ...]]:
    storage = validate(profile)
    chosen = profile.kv_storage if declarations is None else tuple(declarations)
    if storage is None or not chosen:
        raise refuse(
            Rule.NOTHING_DECLARED,
            "kv_storage",
            f"{profile.id!r} declares no keys and values; there is no page",
        )
    if len(set(chosen)) < len(chosen):
        raise refuse(
            Rule.STATE_SHARED, "declarations", "one is given twice, and would be two layers; give each once"
        )
    for declaration in chosen:
        if declaration not in profile.kv_storage:
            raise refuse(
                Rule.NOT_OF_PROFILE,
                "declarations",
                f"{declaration} is not declared by {profile.id!r}; declare it",
            )
    return storage, chosen


def _geometry(profile: Profile, chosen: tuple[Declaration, ...]) -> tuple[int, int]:
    shapes = {profile.state(declaration.payload).tensor.dimensions[1:] for declaration in chosen}
    if len(shapes) > 1:
        listed = ", ".join(map(str, sorted(shapes)))
        raise refuse(
            Rule.GEOMETRIES_MIXED,
            "declarations",
            f"heads and head_dim of {listed} make no one page; describe each geometry's declarations by themselves",
        )
    heads, head_dim = shapes.pop()
    return heads, head_dim


def _check_page_tokens(profile: Profile, chosen: tuple[Declaration, ...], page_tokens: int) -> None:
    shortest = min(_tokens(profile, declaration) for declaration in chosen)
    if not 1 <= page_tokens <= shortest:
        raise refuse(
            Rule.PAGE_TOKENS,
            "page_tokens",
            f"{page_tokens} of at most {shortest} tokens; use 1 to {shortest}",
        )


def _flags(profile: Profile, chosen: tuple[Declaration, ...]) -> frozenset[Flag]:
    permitted = frozenset(build.PERMITTED)
    for declaration in chosen:
        permitted -= _forbidden(profile.state(declaration.payload).checkpoint)
    return permitted


def _forbidden(checkpoint: Checkpoint) -> frozenset[Flag]:
    if not isinstance(checkpoint, CompletedBoundary):
        return frozenset({Flag.EXACT_REUSE, Flag.PREFIX_REUSE})
    whole = checkpoint.input_dependency is InputDependency.ENTIRE_TOKEN_INPUT
    return frozenset({Flag.PREFIX_REUSE}) if whole else frozenset()


def _tokens(profile: Profile, declaration: Declaration) -> int:
    return maximum_tokens(profile.state(declaration.payload))
