"""The yardstick must be right: an unlimited cache's hits, counted once more in the plainest way."""

from nexuskv.data import mooncake_slice
from nexuskv.demo.ideal import PrefixTree, Survey
from nexuskv.demo.trace import Trace


def test_known_prefixes_are_counted_up_to_the_first_new_block() -> None:
    tree = PrefixTree()
    assert tree.leading_known((1, 2, 3)) == 0
    assert tree.leading_known((1, 2, 4, 3)) == 2
    assert tree.leading_known((2, 3)) == 0
    assert tree.leading_known((1, 2, 4, 3, 5)) == 4
    assert len(tree) == 3 + 2 + 2 + 1


def test_an_empty_prompt_hits_nothing() -> None:
    assert PrefixTree().leading_known(()) == 0


def test_survey_agrees_with_a_set_of_prefixes() -> None:
    trace = Trace(mooncake_slice(), limit=200)
    survey = Survey(trace)
    seen = set[tuple[int, ...]]()
    hits = tokens = 0
    for request in trace:
        prefixes = [request.hash_ids[: n + 1] for n in range(len(request.hash_ids))]
        known = sum(prefix in seen for prefix in prefixes)
        hits, tokens = hits + known, tokens + min(request.input_length, 512 * known)
        seen.update(prefixes)
    assert (survey.hit_blocks, survey.hit_tokens, survey.distinct) == (hits, tokens, len(seen))
    assert survey.hit_rate == hits / survey.blocks
    assert survey.longest == max(len(request.hash_ids) for request in trace)


def test_the_slice_repeats_enough_to_show_something() -> None:
    survey = Survey(Trace(mooncake_slice()))
    assert (survey.requests, survey.distinct, survey.hit_blocks) == (800, 17_809, 4_214)
