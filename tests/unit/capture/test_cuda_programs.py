"""Whole programs on the stand-in for torch.cuda, recorded with the real hooks: the report says what the engines did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from support import cuda
from support.cuda import MS, GpuSpec, Machine, installed
from support.cuda.machine import BOUNDARY
from support.cuda.programs import BATCH, Data, Prefetcher, loader, net, plain, prefetching, train
from support.cuda.recorded import Recorded, Run, assert_true

LOOPS = {
    "a slow loader": {"load_ns": 70 * MS},
    "a slow loader that pins": {"load_ns": 70 * MS, "pinned": True},
    "a loader that is fast enough": {"load_ns": 10 * MS, "pinned": True},
    "the loss is read in each step": {"reads": True},
    "the loss is read, and the host is slow": {"reads": True, "after_ns": 30 * MS},
    "the host is slow": {"load_ns": 10 * MS, "after_ns": 80 * MS, "pinned": True},
}


@pytest.mark.parametrize("how", LOOPS)
def test_a_plain_loop(run: Run, how: str) -> None:
    recorded = run(lambda machine: plain(machine, **LOOPS[how]))
    assert recorded.device == "cuda"
    assert_true(recorded)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_plain_loop_whose_copies_take_long(run: Run, pinned: bool) -> None:
    slow = GpuSpec(pinned_bytes_per_s=20_000, pageable_bytes_per_s=10_000)
    assert_true(run(lambda machine: plain(machine, pinned=pinned), slow))


def test_gradients_are_accumulated_over_four_batches(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for number, (images, labels) in enumerate(loader(80, 30 * MS)):
            loss = cross_entropy(model(images.cuda()), labels.cuda()) / 4
            loss.backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    assert_true(run(program))


def test_mixed_precision_with_a_scaler(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
        for images, labels in loader(60, 70 * MS):
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = cross_entropy(model(images.cuda()), labels.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert_true(run(program))


def test_validation_and_a_checkpoint_between_epochs(run: Run, tmp_path: Path) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training, validation = loader(25, 60 * MS), loader(5, 60 * MS)
        for _ in range(4):
            for images, labels in training:
                loss = cross_entropy(model(images.cuda()), labels.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with machine.at(BOUNDARY):
                with torch.no_grad():
                    for images, labels in validation:
                        cross_entropy(model(images.cuda()), labels.cuda()).item()
                machine.host(50 * MS, BOUNDARY)

    assert_true(run(program))


@pytest.mark.parametrize("bytes_per_s", [2_000, 4_000, 20_000], ids=["copies limit", "even", "computing limits"])
def test_a_prefetcher_on_a_side_stream(run: Run, bytes_per_s: int) -> None:
    spec = GpuSpec(pinned_bytes_per_s=bytes_per_s)  # a batch has 160 bytes
    assert_true(run(lambda machine: prefetching(lambda side: torch.cuda.current_stream().wait_stream(side)), spec))


def test_two_streams_compute_side_by_side(run: Run) -> None:
    def program(machine: Machine) -> None:
        first, second = net().cuda(), net().cuda()
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        side = torch.cuda.Stream()
        for images, labels in loader(60, 60 * MS):
            images, labels = images.cuda(), labels.cuda()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                other = cross_entropy(second(images), labels)
            loss = cross_entropy(first(images), labels)
            torch.cuda.current_stream().wait_stream(side)
            optimizer.zero_grad()
            (loss + other).backward()
            optimizer.step()

    assert_true(run(program))


def test_running_out_of_memory_and_going_on_with_less(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (images, labels) in enumerate(loader(60, 60 * MS)):
            try:
                if number in (20, 21, 40):
                    torch.empty(10**9, device="cuda")
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                continue
            loss = cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert_true(run(program, GpuSpec(memory_bytes=10**9)))


def test_running_out_of_memory_frees_what_was_kept_for_the_copies_that_follow(run: Run) -> None:
    """They allocate anew, within the call that copies."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
        batches = loader(8, MS, pin_memory=True)
        for number, (images, labels) in enumerate(
            Prefetcher(batches, lambda side: torch.cuda.current_stream().wait_stream(side))
        ):
            if number == 4:
                with pytest.raises(torch.OutOfMemoryError):
                    torch.empty(10**10, dtype=torch.uint8, device="cuda")
                continue
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert_true(run(program, step_ns=150 * MS))


def test_running_out_of_memory_ends_the_program(run: Run) -> None:
    def program(machine: Machine) -> None:
        plain(machine, 60 * MS)
        torch.empty(10**9, device="cuda")

    recorded = run(program, GpuSpec(memory_bytes=10**9), error=torch.OutOfMemoryError)
    assert isinstance(recorded.error, torch.OutOfMemoryError)
    assert_true(recorded)


def test_an_error_of_the_dataset_ends_the_program(run: Run) -> None:
    class Broken(Data):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index == 40 * BATCH:
                raise ValueError("a broken file")
            return super().__getitem__(index)

    def program(machine: Machine) -> None:
        train(machine, DataLoader(Broken(60, 15 * MS), batch_size=BATCH))

    recorded = run(program, error=ValueError)
    assert str(recorded.error) == "a broken file"
    assert_true(recorded)


def test_an_error_in_the_midst_of_a_step_is_caught_and_the_training_goes_on(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (images, labels) in enumerate(loader(60, 60 * MS)):
            try:
                given = images.cuda() if number % 10 else images
                loss = cross_entropy(model(given), labels.cuda())
            except RuntimeError:
                continue  # tensors of two devices
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert_true(run(program))


def test_an_epoch_is_left_early(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = loader(60, 60 * MS)
        for _ in range(4):
            for number, (images, labels) in enumerate(batches):
                loss = cross_entropy(model(images.cuda()), labels.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if number == 15:
                    break

    assert_true(run(program))


class Replayed(torch.autograd.Function):
    """A forward and a backward pass that are graphs, as `torch.compile(mode="reduce-overhead")` makes them of a model:
    inputs are copied into static memory, then the graph is replayed (torch/_inductor/cudagraph_trees.py,
    `CUDAGraphNode.run`)."""

    @staticmethod
    def forward(context: Any, graphs: Any, images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.graphs = graphs
        graphs.images.copy_(images)
        graphs.forward.replay()
        return graphs.loss.clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, None, torch.Tensor]:
        context.graphs.backward.replay()
        return None, None, context.graphs.gradient.clone()


def test_forward_and_backward_are_graphs_as_a_compiler_makes_them(run: Run) -> None:
    def program(machine: Machine) -> None:
        weight = torch.ones(8, requires_grad=True, device="cuda")
        graphs = SimpleNamespace(forward=torch.cuda.CUDAGraph(), backward=torch.cuda.CUDAGraph())
        graphs.images = torch.zeros(BATCH, 8, device="cuda")
        torch.cuda.synchronize()
        with torch.no_grad():
            with torch.cuda.graph(graphs.forward):
                graphs.loss = torch.mm(graphs.images, weight[:, None]).sum()
            with torch.cuda.graph(graphs.backward):
                graphs.gradient = torch.mm(graphs.images.T, torch.ones(BATCH, 1, device="cuda"))[:, 0]
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for images, _ in loader(60, 60 * MS):
            loss = Replayed.apply(graphs, images.cuda(), weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert_true(run(program))


@pytest.mark.parametrize("drift", [50e-6, -50e-6])
def test_the_devices_clock_drifts(run: Run, drift: float) -> None:
    assert_true(run(lambda machine: plain(machine, 700 * MS, steps=100), GpuSpec(drift=drift), step_ns=400 * MS))


def test_the_driver_answers_late(run: Run) -> None:
    assert_true(run(lambda machine: plain(machine, 70 * MS), GpuSpec(answer_late_ns=MS // 2)))


def test_no_call_of_ours_waits_for_the_device_but_one_at_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        alone = installed(Machine(), patch)
        plain(alone, 10 * MS, pinned=True)
    recorded = run(lambda machine: plain(machine, 10 * MS, pinned=True))
    assert recorded.machine.synchronised - alone.synchronised <= 1


COMMAND = """
from support.cuda import MS
from support.cuda.machine import the
from support.cuda.programs import compute, plain
the().durations = compute(40 * MS)
plain(the(), 60 * MS)
"""


def test_a_command_on_the_stand_in_is_recorded_as_any_other(tmp_path: Path) -> None:
    """By `whyidle run`, in a process that knows nothing of this test."""
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(COMMAND)
    command = [sys.executable, "-m", "support.cuda", "1", str(script)]
    tests = str(Path(cuda.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str(folder), "--", *command],
        env=os.environ | {"PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recorded = Recorded(Machine(), folder, None)
    assert recorded.device == "cuda"
    parts = recorded.facts.parts
    assert parts.share("compute") == pytest.approx(2 / 3, abs=0.002)
    assert parts.share("input") == pytest.approx(1 / 3, abs=0.002)
