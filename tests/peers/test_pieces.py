"""The parts of the peer half that do no I/O: frames, the circuit breaker, the gauge."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexuskv.protocol import messages as m
from nexuskv_daemon.peers import messages as p
from nexuskv_daemon.peers.breaker import FAILURES, LONGEST_REST_SECONDS, REST_SECONDS, Breaker
from nexuskv_daemon.peers.checksums import checksum
from nexuskv_daemon.peers.gauge import STALE_SECONDS, Gauge

KEY = bytes(range(32))
SAID: list[p.AnyMessage] = [
    p.Hello(0, p.PROTOCOL_VERSION, "here", 2**63 - 1, "tcp://h:1", ["tcp://h:2"]),
    p.Open(1, "uid:0", KEY),
    m.Measure(2, 1, [KEY] * 50),
    p.Pinned(3, 0, [p.RemotePage(1, 4096, b"\xff" * 8)]),
    p.Offer(4, "uid:0", b"x", [KEY], b"", 10),
    p.Refused(5, "code", "sentence"),
]
STREAM = b"".join(map(p.frame, SAID))


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_frames_are_found_however_they_are_cut(cuts: list[int]) -> None:
    frames = p.Frames()
    found: list[p.AnyMessage] = []
    for start, stop in pairwise(sorted({0, *cuts, len(STREAM)})):
        found += frames.feed(STREAM[start:stop])
    assert found == SAID


@given(st.binary(max_size=200), st.integers(0, len(STREAM)))
def test_whatever_comes_is_a_message_or_a_bad_peer(noise: bytes, at: int) -> None:
    with contextlib.suppress(p.BadPeer):
        found = p.Frames().feed(STREAM[:at] + noise + STREAM[at:])
        assert all(isinstance(message, m.Message) for message in found)


def test_a_frame_may_not_be_larger_than_agreed() -> None:
    with pytest.raises(p.BadPeer, match="at most"):
        p.Frames().feed((p.MAX_FRAME + 1).to_bytes(4, "little"))


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_trial_through() -> None:
    breaker = Breaker(lambda: 1.0)
    for _ in range(FAILURES - 1):
        breaker.failed(0.0)
    assert breaker.closed(0.0)
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed(0.0)
    assert not breaker.closed(REST_SECONDS - 0.1)
    assert breaker.closed(REST_SECONDS)
    assert not breaker.closed(REST_SECONDS + 0.1), "others wait for the trial's outcome"
    breaker.succeeded()
    assert breaker.closed(REST_SECONDS + 0.2)


def test_a_breaker_without_patience_opens_at_the_first_failure() -> None:
    breaker = Breaker(lambda: 1.0, patience=1)
    assert breaker.closed(0.0)
    breaker.failed(0.0)
    assert not breaker.closed(REST_SECONDS - 0.1)
    assert breaker.closed(REST_SECONDS)
    assert not breaker.closed(REST_SECONDS + 0.1)


def test_rests_grow_up_to_a_bound_and_differ_between_hosts() -> None:
    patient, hasty = Breaker(lambda: 1.0), Breaker(lambda: 0.0)
    for breaker in (patient, hasty):
        for _ in range(20):
            breaker.failed(0.0)
    assert patient.resting(LONGEST_REST_SECONDS - 0.1)
    assert not patient.resting(LONGEST_REST_SECONDS)
    assert not hasty.resting(LONGEST_REST_SECONDS / 2)


def test_a_gauge_estimates_from_what_it_measured_and_forgets() -> None:
    gauge = Gauge()
    assert gauge.estimate(1 << 20, 0.0) is None
    gauge.answered(0.001)
    gauge.pulled(100 << 20, 1.001, now=10.0)
    assert gauge.bandwidth == pytest.approx(100 << 20)
    assert gauge.estimate(200 << 20, 11.0) == pytest.approx(2.002)
    gauge.pulled(4096, 0.5, now=11.0)  # one small page tells nothing of bandwidth
    assert gauge.bandwidth == pytest.approx(100 << 20)
    gauge.pulled(50 << 20, 1.001, now=12.0)
    assert (50 << 20) < gauge.bandwidth < (100 << 20)
    assert gauge.estimate(1, 12.1 + STALE_SECONDS) is None


def test_a_checksum_is_never_the_word_for_unknown() -> None:
    assert checksum(memoryview(b"page")) == checksum(memoryview(bytearray(b"page"))) != 0
