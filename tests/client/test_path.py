"""The shared key lists of branches against plain lists."""

import hypothesis.strategies as st
from hypothesis import given

from nexuskv.client.path import Path

STEPS = st.lists(
    st.tuples(st.sampled_from(["fork", "extend", "replace"]), st.integers(0, 50), st.integers(1, 3))
)


@given(STEPS)
def test_forks_share_what_was_there_and_nothing_after(steps: list[tuple[str, int, int]]) -> None:
    paths, models = [Path([b"root"])], [[b"root"]]
    for number, (what, which, count) in enumerate(steps):
        at = which % len(paths)
        if what == "fork":
            paths.append(paths[at].fork())
            models.append(list(models[at]))
            continue
        fresh = [f"{number}.{each}".encode() for each in range(count)]
        replaces = what == "replace"
        paths[at].extend(fresh, replaces_last=replaces)
        models[at] = models[at][: len(models[at]) - replaces] + fresh

    for path, model in zip(paths, models, strict=True):
        assert path.keys() == model
        assert len(path) == len(model)
        assert [path.last(back) for back in range(len(model))] == model[::-1]
        assert path.last(len(model)) == b""


def test_an_empty_path_has_no_last_key() -> None:
    assert Path([]).fork().last() == b""
    assert Path([]).fork().keys() == []
