"""Boundaries of a group: where they lie, what they need, and which is the longest, against brute force."""

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

import nexuskv
from nexuskv.contract import AllPages, Descriptor, LastCheckpoint, Reuse, Window, usable
from nexuskv.contract.groups import Member, boundary_tokens, longest_boundary, member, members

RULES = st.one_of(
    st.just(AllPages()),
    st.just(LastCheckpoint()),
    st.integers(1, 100).map(lambda tokens: Window(tokens=tokens)),
)
MEMBERS = st.tuples(RULES, st.integers(1, 20), st.integers(1, 4))
"""Rule, tokens of a page, and pages of a boundary."""


def attention(page_tokens: int, name: str = "") -> Descriptor:
    return nexuskv.mha(
        name or f"attention-{page_tokens}", layers=1, kv_heads=1, head_dim=8, page_tokens=page_tokens,
        dtype="float16", engine_family="VLLM",
    )  # fmt: skip


def checkpoint(page_tokens: int) -> Descriptor:
    return nexuskv.mamba2(
        f"ssm-{page_tokens}", heads=1, head_dim=4, state_size=4, page_tokens=page_tokens, dtype="float16",
        engine_family="VLLM",
    )  # fmt: skip


def satisfied(rule: Reuse, page_tokens: int, before: bytes) -> bool:
    """The rule as the specification words it, page by page of those before the boundary."""
    match rule:
        case AllPages():
            return all(before)
        case LastCheckpoint():
            return bool(before[-1])
        case Window():
            stop = len(before) * page_tokens
            return all(before[token // page_tokens] for token in range(max(0, stop - rule.tokens), stop))


@given(st.data())
def test_the_longest_boundary_is_the_largest_at_which_every_member_satisfies_its_rule(
    data: st.DataObject,
) -> None:
    group = data.draw(st.lists(MEMBERS, min_size=1, max_size=4))
    limit = data.draw(st.integers(0, 8))
    there = st.integers(0, 9).map(bool)
    present = [
        bytes(data.draw(st.lists(there, min_size=limit * pages, max_size=limit * pages)))
        for _, _, pages in group
    ]

    def usable_at(boundary: int) -> bool:
        each = zip(group, present, strict=True)
        return all(satisfied(rule, size, found[: boundary * pages]) for (rule, size, pages), found in each)

    expected = max(boundary for boundary in range(limit + 1) if boundary == 0 or usable_at(boundary))
    members_of = [member(*each) for each in group]
    found = longest_boundary(members_of, present, limit)
    assert found == expected
    for each, pages in zip(members_of, present, strict=True):
        assert all(pages[page] for page in each.needed(found))


def test_every_pattern_of_three_members_and_four_boundaries() -> None:
    """All of them: a boundary that one member takes away may be one that another has not looked at yet."""
    rules: tuple[Reuse, ...] = (AllPages(), LastCheckpoint(), Window(tokens=2))
    patterns = [bytes(pattern) for pattern in itertools.product((0, 1), repeat=4)]
    good = {
        (rule, pattern): [satisfied(rule, 1, pattern[:boundary]) for boundary in range(1, 5)]
        for rule in rules
        for pattern in patterns
    }
    for group in itertools.product(rules, repeat=3):
        members_of = [member(rule, 1, 1) for rule in group]
        for present in itertools.product(patterns, repeat=3):
            each = [good[place] for place in zip(group, present, strict=True)]
            expected = max((at + 1 for at in range(4) if all(found[at] for found in each)), default=0)
            assert longest_boundary(members_of, present, 4) == expected, (group, present)


@given(rule=RULES, page_tokens=st.integers(1, 20), present=st.lists(st.booleans(), max_size=12))
def test_a_group_of_one_is_that_one(rule: Reuse, page_tokens: int, present: list[bool]) -> None:
    alone = member(rule, page_tokens, 1)
    found = longest_boundary([alone], [bytes(present)], len(present))
    assert alone.needed(found) == usable(rule, present, page_tokens)


@given(each=MEMBERS.map(lambda each: member(*each)), boundary=st.integers(1, 8))
def test_a_page_belongs_to_one_boundary_and_each_boundary_needs_its_own(each: Member, boundary: int) -> None:
    own = each.own(boundary)
    assert set(own) <= set(each.needed(boundary))
    assert not set(own) & set(each.own(boundary + 1))
    earlier = {page for before in range(1, boundary + 1) for page in each.own(before)}
    assert set(each.needed(boundary)) <= earlier


def test_boundaries_lie_where_pages_of_all_members_end() -> None:
    assert boundary_tokens([attention(16)]) == 16
    assert boundary_tokens([attention(16), checkpoint(256)]) == 256
    assert boundary_tokens([attention(16), checkpoint(24)]) == 48
    assert [each.pages for each in members([attention(16), checkpoint(24)])] == [3, 2]


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(nexuskv.LocalError, match="no descriptors"):
        boundary_tokens([])
    with pytest.raises(nexuskv.LocalError, match="'b' and 'a' are one physical contract"):
        boundary_tokens([attention(16, name="a"), checkpoint(16), attention(16, name="b")])
