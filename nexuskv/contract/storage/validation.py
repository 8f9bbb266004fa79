"""Whether a profile's declarations fit its states.

Owns every rule that needs more than one part of a profile. Knows nothing of programs. Nothing is inferred from names
or shapes: what a declaration does not say, is refused. Each refusal is a StorageError with the rule and the field.

    payload   [2, heads, head_dim]   keys, then values, of one token; F16 or I8
    scales    [2, heads]             F32, what the token's keys and values of a head were divided by
"""

from collections import Counter
from collections.abc import Callable, Iterable

from nexuskv.contract.storage.declarations import Declaration, Int8, Profile
from nexuskv.contract.storage.form import within
from nexuskv.contract.storage.rules import Rule, refuse
from nexuskv.contract.storage.states import CompletedBoundary, Contiguous, State, TokenScaled
from nexuskv.contract.storage.vocabulary import Contents, ElementType, Format, Lifetime

PAYLOAD_TYPE = {
    Format.F16: ElementType.F16,
    Format.INT8_PER_TOKEN_HEAD_F32_SCALE_V1: ElementType.I8,
}
"""Element type of the keys and values in each format."""


def validate(profile: Profile) -> Format | None:
    """The format of the profile's keys and values; None when it declares none. Raises StorageError."""
    _check_unique(Rule.STATE_ID_TWICE, "states", "id", (state.id for state in profile.states))
    _check_unique(Rule.VALUE_ID_TWICE, "states", "value_id", (state.value_id for state in profile.states))
    _check_one_format(profile)
    _check_named(profile)
    for index, declaration in enumerate(profile.kv_storage):
        with within(f"kv_storage[{index}]"):
            _check_declaration(profile, declaration)
    return profile.kv_storage[0].format if profile.kv_storage else None


def _check_unique(rule: Rule, field: str, what: str, ids: Iterable[str]) -> None:
    for identifier, count in Counter(ids).items():
        if count > 1:
            raise refuse(rule, field, f"{count} have the {what} {identifier!r}; each needs one of its own")


def _check_one_format(profile: Profile) -> None:
    formats = {declaration.format: None for declaration in profile.kv_storage}
    if len(formats) > 1:
        raise refuse(
            Rule.FORMATS_MIXED,
            "kv_storage",
            f"{' and '.join(formats)} in one profile; make a profile of each",
        )


def _check_named(profile: Profile) -> None:
    """Every state that a declaration names is there, and only one names it."""
    _check_unique(
        Rule.STATE_SHARED,
        "kv_storage",
        "state",
        (state for declaration in profile.kv_storage for state in declaration.states),
    )
    declared = profile.by_id
    for index, declaration in enumerate(profile.kv_storage):
        for state in declaration.states:
            if state not in declared:
                raise refuse(
                    Rule.STATE_UNDECLARED,
                    f"kv_storage[{index}]",
                    f"{state!r} is no state; declare it in states",
                )


def _check_declaration(profile: Profile, declaration: Declaration) -> None:
    payload = profile.state(declaration.payload)
    with within(payload.id):
        _check_payload(payload, declaration.format)
        _check_kept(payload)
    if isinstance(declaration, Int8):
        scales = profile.state(declaration.scale_state)
        with within(scales.id):
            _check_scales(scales, payload)
            _check_kept(scales)
            _check_follows(scales, payload)


def _check_payload(payload: State, storage: Format) -> None:
    _demand(
        Rule.PAYLOAD_ELEMENT_TYPE, "tensor.element_type", payload.tensor.element_type, PAYLOAD_TYPE[storage]
    )
    dimensions = payload.tensor.dimensions
    if len(dimensions) != 3 or dimensions[0] != 2:
        raise refuse(
            Rule.PAYLOAD_SHAPE,
            "tensor.dimensions",
            f"{list(dimensions)} is no [2, heads, head_dim]; use that",
        )
    if not all(dimensions):
        raise refuse(
            Rule.PAYLOAD_EMPTY,
            "tensor.dimensions",
            f"{list(dimensions)} holds nothing; heads and head_dim are 1 or more",
        )


def _check_scales(scales: State, payload: State) -> None:
    _demand(Rule.SCALE_ELEMENT_TYPE, "tensor.element_type", scales.tensor.element_type, ElementType.F32)
    expected = payload.tensor.dimensions[:2]
    if scales.tensor.dimensions != expected:
        raise refuse(
            Rule.SCALE_SHAPE,
            "tensor.dimensions",
            f"{list(scales.tensor.dimensions)} where {payload.id!r} has a scale for each of {list(expected)}",
        )


def _check_kept(state: State) -> None:
    """What payload and scales have in common: they can be cut into pages of tokens."""
    if not isinstance(state.tensor.layout, Contiguous):
        raise refuse(Rule.KV_LAYOUT, "tensor.layout", "keys and values have no gaps; use contiguous")
    _demand(Rule.KV_LIFETIME, "lifetime", state.lifetime, Lifetime.SEQUENCE)
    if (
        isinstance(state.checkpoint, CompletedBoundary)
        and state.checkpoint.contents is not Contents.PREFIX_POSITIONS
    ):
        raise refuse(
            Rule.KV_CHECKPOINT_CONTENTS,
            "checkpoint.contents",
            f"{state.checkpoint.contents} forgets the tokens before the boundary; use prefix_positions",
        )
    if not isinstance(state.capacity, TokenScaled):
        raise refuse(
            Rule.KV_CAPACITY_KIND, "capacity", "keys and values grow with the tokens; use token_scaled"
        )
    _demand(
        Rule.KV_BYTES_PER_TOKEN,
        "capacity.bytes_per_token",
        state.capacity.bytes_per_token,
        state.tensor.nbytes,
    )


def _check_follows(scales: State, payload: State) -> None:
    """A scale lives as long as what it scales, and comes back with it."""
    same: tuple[tuple[Rule, str, Callable[[State], object]], ...] = (
        (Rule.SCALE_TOKENS, "capacity.maximum_tokens", maximum_tokens),
        (Rule.SCALE_INITIALISATION, "initialisation", lambda state: state.initialisation),
        (Rule.SCALE_CHECKPOINT, "checkpoint", lambda state: state.checkpoint),
    )
    for rule, field, of in same:
        if of(scales) != of(payload):
            raise refuse(rule, field, f"{of(scales)} where {payload.id!r} has {of(payload)}; make them equal")


def maximum_tokens(state: State) -> int:
    """Tokens of a token-scaled state, which every state of a validated declaration is."""
    assert isinstance(state.capacity, TokenScaled)
    return state.capacity.maximum_tokens


def _demand(rule: Rule, field: str, found: object, needed: object) -> None:
    if found != needed:
        raise refuse(rule, field, f"{found} where {needed} is needed; declare {needed}")
