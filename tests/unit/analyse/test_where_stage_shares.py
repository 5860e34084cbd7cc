"""How the time of making batches divides between stages."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.planted_stacks import CONTENTS, FETCH, FETCHING, LOOP, OPEN, WAITING, WORKER
from support.stacks import LIB
from whyidle.analyse.where.looks import Looks
from whyidle.analyse.where.stage_shares import OTHER, Stages, handing_stages, making_stages
from whyidle.record.schema import NOT_MEASURED, STACK, ThreadState
from whyidle.record.stacks import Call, CallStack, StackTable
from whyidle.scenarios.planted import MS, START

ITEM = "/home/me/data.py"
MADE: dict[str, CallStack] = {
    "open": (OPEN, CONTENTS),
    "decode": (Call("Shards.__getitem__", ITEM, 29), Call("ImageFile.load", "/x/site-packages/PIL/ImageFile.py", 3)),
    "transform": (
        Call("Shards.__getitem__", ITEM, 30),
        Call("RandomCrop.forward", "/x/site-packages/torchvision/transforms/transforms.py", 3),
    ),
    "collate": (Call("default_collate", "/x/site-packages/torch/utils/data/_utils/collate.py", 3),),
    "sample": (Call("Shards.crop.<locals>.<listcomp>", ITEM, 40, "[x for x in window]"),),
}
"""A stack below torch's fetcher for each of some stages."""


def made(stage: str) -> CallStack:
    return (*FETCHING[:2], LOOP, FETCH, *MADE[stage])


def planted(stages: Sequence[str | None], state: int = ThreadState.RUNS) -> Looks:
    """Looks at a worker, of which each sees such a stage; `None`: it failed."""
    return seen([() if stage is None else made(stage) for stage in stages], state)


def seen(stacks: Sequence[CallStack], state: int = ThreadState.RUNS) -> Looks:
    """A look that failed is an empty stack."""
    numbers: dict[CallStack, int] = {(): NOT_MEASURED}
    calls: dict[int, tuple[int, Call]] = {}
    for stack in stacks:
        for depth, call in enumerate(stack):
            number = numbers.setdefault(stack[: depth + 1], len(numbers))
            calls[number] = (numbers[stack[:depth]] if depth else 0, call)
    records = np.zeros(len(stacks), dtype=STACK.dtype)
    records["t_ns"] = START + 100 * MS * np.arange(len(stacks))
    records["process"], records["state"] = WORKER, state
    records["stack"] = [numbers[stack] for stack in stacks]
    return Looks(records, StackTable(calls))


def of(looks: Looks, *transforms: str) -> Stages:
    found = making_stages(looks, "the time in which workers make batches", transforms)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(4))
def test_planted_shares_come_out_within_their_intervals(seed: int) -> None:
    shares = {"decode": 0.61, "open": 0.12, "transform": 0.14, "collate": 0.05, "sample": 0.08}
    drawn = Random(seed).choices(list(shares), list(shares.values()), k=400)
    found = of(planted(drawn))
    assert found.looks == 400
    # Of five intervals of 95 % one may miss.
    missed = [part.stage for part in found.parts if not part.share.low <= shares[part.stage] <= part.share.high]
    assert len(missed) <= 1
    assert found.costliest == ("decode", drawn.count("decode") / 400)
    decoding = found.parts[0]
    assert (decoding.stage, decoding.looks, decoding.calls) == ("decode", drawn.count("decode"), "ImageFile.load")
    assert decoding.at == MADE["decode"][0]


def test_the_rest_is_the_programs_own_code_by_its_function_and_line() -> None:
    found = of(planted(["sample"] * 30 + ["open"] * 10))
    own = found.parts[0]
    assert (own.stage, own.name, own.words, own.at) == ("sample", "Shards.crop", "Shards.crop", MADE["sample"][0])
    # What takes most has no name of a stage, so none is to be made cheaper.
    assert found.costliest is None


def test_own_code_that_waits_is_what_the_kernel_says_that_it_waits_for() -> None:
    found = of(planted(["sample"] * 30, ThreadState.SHARED_LOCK))
    assert [part.stage for part in found.parts] == ["lock"]
    assert found.costliest is None


def test_looks_that_failed_or_saw_nothing_made_count_for_nothing() -> None:
    assert of(planted(["open", None] * 20)).looks == 20
    assert of(seen([made("open"), WAITING] * 20)).looks == 20


def test_few_looks_tell_nothing() -> None:
    assert making_stages(planted(["open"] * 19), "making", ()) is None
    assert making_stages(seen([(), WAITING] * 20), "making", ()) is None


def test_what_lasts_from_look_to_look_counts_for_fewer_of_them() -> None:
    in_turn, at_once = ["open", "decode"] * 100, ["open"] * 100 + ["decode"] * 100
    (apart, _), (together, _) = (of(planted(which)).parts for which in (in_turn, at_once))
    assert apart.share.value == together.share.value == 0.5
    assert together.share.high - together.share.low > 2 * (apart.share.high - apart.share.low)


@given(st.lists(st.sampled_from([*MADE, None]), min_size=60, max_size=80).map(lambda s: ["open"] * 20 + s))
def test_the_parts_sum_to_the_whole(stages: list[str | None]) -> None:
    found = of(planted(stages))
    assert sum(part.share.value for part in found.parts) == pytest.approx(1)
    assert sum(part.looks for part in found.parts) == found.looks == len([s for s in stages if s is not None])
    assert all(0 <= part.share.low <= part.share.value <= part.share.high <= 1 for part in found.parts)


def test_stages_that_are_too_small_are_told_together() -> None:
    found = of(planted(["open"] * 96 + ["decode", "collate"] * 2))
    assert [(part.stage, part.looks, part.words) for part in found.parts] == [
        ("open", 96, "opening files"),
        (OTHER, 4, "all else"),
    ]


def test_handing_over_divides_too() -> None:
    queue = Call("Queue._feed", f"{LIB}/multiprocessing/queues.py", 264, "obj = _ForkingPickler.dumps(obj)")
    sends = Call("Connection._send", f"{LIB}/multiprocessing/connection.py", 384, "n = write(self._handle, buf)")
    stacks: list[CallStack] = [(queue,), (queue,), (queue,), (queue, sends)]
    found = handing_stages(seen(stacks * 10), "the time in which batches are packed and unpacked")
    assert found is not None
    assert [(part.stage, part.share.value) for part in found.parts] == [("pickle", 0.75), ("send", 0.25)]
