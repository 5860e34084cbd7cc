"""What py-spy's file says of each look: round trips through a writer that follows py-spy's rules, and bad files."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.stacks.spy import MOST_DEPTH, SpyTrace, _offset_ns, read_trace
from whyidle.record.stacks import Call, CallStack

ROOT = Call("<module>", "/home/u/train.py", 9)
LINES = st.builds(Call, st.sampled_from(["load", "decode", "step"]), st.just("/home/u/train.py"), st.integers(1, 3))
WHOLE = st.lists(LINES, max_size=4).map(lambda calls: (ROOT, *calls))


def chrome_trace(looks: list[dict[int, CallStack]], gap_us: int = 100_000) -> list[dict[str, Any]]:
    """The events of py-spy 0.4.3 (`src/chrometrace.rs`): of each thread's stack what changed, and at the end all that
    is open, innermost first."""
    events: list[dict[str, Any]] = []
    before: dict[int, list[Call]] = {}

    def event(thread: int, call: Call, phase: str, at_us: int) -> None:
        told = {"cat": "py-spy", "pid": 1, "tid": 140_000 + thread, "name": call.function, "ph": phase, "ts": at_us}
        events.append(told | {"args": {"filename": call.file, "line": call.line}})

    for number, look in enumerate(looks):
        for place, (thread, stack) in enumerate(look.items()):
            at_us = number * gap_us + place
            now = [Call(f"thread ({thread}): name"), *stack]
            old = before.get(thread, [])
            same = next((i for i, (a, b) in enumerate(zip(old, now, strict=False)) if a != b), min(len(old), len(now)))
            for call in reversed(old[same:]):
                event(thread, call, "E", at_us)
            for call in now[same:]:
                event(thread, call, "B", at_us)
            before[thread] = now
    for thread, stack in before.items():
        for call in reversed(stack):
            event(thread, call, "E", len(looks) * gap_us)
    return events


def trace_of(events: object) -> SpyTrace:
    return read_trace((events if isinstance(events, str) else json.dumps(events)).encode())


@given(st.lists(st.dictionaries(st.integers(1, 3), WHOLE, min_size=1), min_size=1, max_size=12))
def test_each_look_is_found_again_of_every_thread(
    looks: list[dict[int, CallStack]],
) -> None:
    trace = trace_of(chrome_trace(looks))
    seen: dict[int, CallStack] = {}
    for number, look in enumerate(looks):
        seen |= look
        at = number * 100_000 + 50
        assert {thread: found for thread, each in trace.threads.items() if (found := each.at(at))} == seen
    assert trace.changes_us[0] == 0
    assert trace.last_change_us(-1) is None
    assert all(trace.last_change_us(at) == at for at in trace.changes_us)


def test_a_thread_that_takes_over_anothers_number_in_the_library_is_another_one() -> None:
    first, second = ({thread: (ROOT, Call("run", "/a.py", thread))} for thread in (7, 8))
    events = [each | {"tid": 5} for each in chrome_trace([first])[:-3]]
    begins = [each | {"tid": 5, "ts": 9} for each in chrome_trace([second])[:-3]]
    ends = [each | {"ph": "E", "ts": 9} for each in reversed(events)]
    trace = trace_of([*events, *ends, *begins, begins[-1] | {"ph": "E", "ts": 99}])
    assert trace.threads[7].at(8) == first[7]
    assert trace.threads[7].at(9) == ()
    assert trace.threads[8].at(9) == second[8]


def test_a_stack_that_does_not_begin_at_a_root_is_none() -> None:
    torn = (Call("decode", "/home/u/train.py", 3),)
    looks: list[dict[int, CallStack]] = [{1: (ROOT, Call("load", "/a.py", n))} for n in range(30)]
    looks[9] = {1: torn}
    thread = trace_of(chrome_trace(looks)).threads[1]
    assert [n for n in range(30) if thread.at(n * 100_000 + 50) == ()] == [9]


def test_what_begins_many_stacks_of_a_thread_is_a_root_whatever_it_is_called() -> None:
    looks: list[dict[int, CallStack]] = [{1: (Call("callback", "/c.py", 3), Call("f", "/c.py", n))} for n in range(9)]
    thread = trace_of(chrome_trace(looks)).threads[1]
    assert thread.at(50) == looks[0][1]


def test_of_a_deep_stack_the_innermost_calls_are_kept() -> None:
    deep = (ROOT, *(Call("deep", "/a.py", n) for n in range(2 * MOST_DEPTH)))
    thread = trace_of(chrome_trace([{1: deep}])).threads[1]
    assert thread.at(50) == deep[-MOST_DEPTH:]


BEGIN = {"name": "thread (1): a", "ph": "B", "tid": 1, "ts": 1, "args": {"filename": "", "line": 0}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "Input data was truncated"),
        ("[1, 2]", "Expected `object`"),
        (json.dumps([BEGIN])[:-9], "truncated"),
        ([BEGIN | {"ts": "soon"}], "Expected `int`"),
        ([BEGIN | {"args": {}}], "missing required field `filename`"),
        ([BEGIN | {"ph": "E"}, BEGIN | {"ts": 2}], "a frame ends that did not begin"),
        ([BEGIN | {"ph": "X"}, BEGIN | {"ts": 2}], "a frame ends that did not begin"),
    ],
)
def test_what_is_no_such_file_is_refused(content: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trace_of(content)


@given(
    # No two alike, as between py-spy's looks: else a lost message would shift them all.
    st.lists(st.integers(25, 250), min_size=3, max_size=60, unique=True),
    st.randoms(use_true_random=False),
    st.integers(0, 3),
    st.integers(-(10**15), 10**15),
)
def test_each_look_is_told_from_the_one_before_whichever_messages_were_late_or_lost(
    gaps_2ms: list[int], draw: random.Random, late: int, behind_ns: int
) -> None:
    made_us = list(itertools.accumulate(2000 * gap for gap in gaps_2ms))
    told = [1000 * at + behind_ns + draw.randrange(30_000, 900_000) for at in made_us]
    # The first looks are heard of late, or not at all; so is one in ten of the others.
    told[:late] = [each + 80_000_000 for each in told[:late]]
    told = sorted(each for place, each in enumerate(told) if place >= late or draw.random() < 0.5)
    told = [each for each in told if draw.random() < 0.9] or told[-1:]
    if len(told) < 3 + 2 * late or len(told) < 0.6 * len(made_us):
        return
    assert _offset_ns(made_us, told) == pytest.approx(behind_ns, abs=1_000_000)
