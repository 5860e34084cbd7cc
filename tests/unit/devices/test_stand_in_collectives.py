"""The stand-in's collectives: which streams wait for them, and what the host waits for."""

from __future__ import annotations

import pytest
import torch

from support.cuda import MS, Machine
from support.cuda.collectives import ProcessGroup, reduce_gradients
from support.cuda.machine import SYNC
from support.cuda.programs import net


def waited(machine: Machine) -> float:
    """Milliseconds until the current stream has nothing left to do."""
    began = machine.now_ns
    torch.cuda.current_stream().synchronize()
    return (machine.now_ns - began) / MS


def test_an_ordinary_collective_lies_in_the_current_stream_and_lasts_until_the_last_rank_has_come(
    machine: Machine,
) -> None:
    group = ProcessGroup(machine, late_ns=30 * MS)
    assert group.all_reduce(10 * MS) is None
    assert machine.gpu.works[-1].stream == 0
    assert waited(machine) == pytest.approx(40, abs=0.1)


def test_an_asynchronous_one_runs_beside_what_is_queued_next_and_after_what_was_queued_before(machine: Machine) -> None:
    group = ProcessGroup(machine)
    torch.cuda._sleep(20 * MS)
    work = group.all_reduce(50 * MS, asynchronous=True)
    torch.cuda._sleep(5 * MS)
    assert work is not None
    assert machine.gpu.works[-2].stream != 0
    assert waited(machine) == pytest.approx(25, abs=0.1)
    began = machine.now_ns
    work.wait()
    assert machine.now_ns - began < MS / 100
    assert waited(machine) == pytest.approx(45, abs=0.2)


def test_the_host_waits_for_a_barrier(machine: Machine) -> None:
    group = ProcessGroup(machine, late_ns=30 * MS)
    began = machine.now_ns
    group.barrier()
    assert (machine.now_ns - began) / MS == pytest.approx(30, abs=0.1)
    assert machine.spans[-1][0] == SYNC


def test_buckets_are_reduced_while_the_backward_pass_goes_on_and_it_ends_with_the_last(machine: Machine) -> None:
    model = net().cuda()
    reduce_gradients(ProcessGroup(machine), model, (10 * MS, 10 * MS))
    machine.durations["mm"] = 20 * MS
    for _ in range(2):
        machine.gpu.works.clear()
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        computed = [work for work in machine.gpu.works if work.name == "mm"]
        first, second = (work for work in machine.gpu.works if work.name == "nccl")
        assert first.begin_ns < computed[-1].end_ns < second.begin_ns
        copied = [work for work in machine.gpu.works if work.name == "copy_"]
        assert len(copied) == len(list(model.parameters()))
        assert copied[-1].begin_ns >= second.end_ns
