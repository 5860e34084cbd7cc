"""Programs on the stand-in for torch.cuda that reach beyond one process on one device: several devices, several ranks,
and loaders with workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from support.cuda import MS, GpuSpec, Machine
from support.cuda.collectives import ProcessGroup, reduce_gradients
from support.cuda.programs import Split, loader, net, train
from support.cuda.recorded import Run, assert_true
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.run import open_run
from whyidle.record.schema import STEP


@pytest.mark.parametrize(
    ("load_ms", "pinning_ms", "options", "step_ms"),
    [
        pytest.param(60, 0, {}, 40, id="fast enough"),
        pytest.param(150, 0, {}, 75, id="slow workers"),
        pytest.param(
            150, 0, {"pin_memory": True, "persistent_workers": True}, 75, id="persistent, with pinned batches"
        ),
        pytest.param(60, 30, {"pin_memory": True}, 60, id="the thread that pins is slow"),
    ],
)
def test_a_loader_with_workers(run: Run, load_ms: int, pinning_ms: int, options: dict[str, Any], step_ms: int) -> None:
    """Played ones. A batch is two tensors to be pinned."""

    def program(machine: Machine) -> None:
        machine.pinning_ns = pinning_ms * MS
        batches = loader(30, load_ms * MS, num_workers=2, **options)
        for _ in range(2):
            train(machine, batches, pinned=options.get("pin_memory", False))

    recorded = run(program)
    steps = open_run(recorded.folder).records(STEP)
    assert np.diff(steps["fetch_begin_ns"][4:29]).mean() == pytest.approx(step_ms * MS, rel=0.02)
    assert_true(recorded)


@pytest.mark.parametrize("reads", [False, True])
def test_a_model_is_split_over_two_devices(run: Run, reads: bool) -> None:
    def program(machine: Machine) -> None:
        model = Split()
        optimizer = torch.optim.AdamW(model.parameters())
        for images, labels in loader(60, 20 * MS):
            loss = cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if reads:
                loss.item()
            machine.host(15 * MS)

    recorded = run(program, GpuSpec(), GpuSpec())
    assert recorded.device == "cuda"
    assert_true(recorded, *recorded.machine.gpus)


@pytest.mark.parametrize("bytes_per_s", [4_000, 20e9], ids=["copies take long", "copies are short"])
def test_a_teacher_on_another_device_is_part_of_the_computation(run: Run, bytes_per_s: float) -> None:
    def program(machine: Machine) -> None:
        model, teacher = net().cuda(), net().to("cuda:1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 70 * MS):
            images, labels = images.cuda(), labels.cuda()
            with torch.no_grad():
                wanted = teacher(images.to("cuda:1")).to("cuda:0")
            said = model(images)
            loss = cross_entropy(said, labels) + (said - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    spec = GpuSpec(peer_bytes_per_s=bytes_per_s)
    recorded = run(program, spec, spec)
    assert_true(recorded, *recorded.machine.gpus)


@pytest.mark.parametrize("bytes_per_s", [10_000, 6e9], ids=["copies take long", "copies are short"])
def test_batches_come_by_another_device(run: Run, bytes_per_s: float) -> None:
    """The copies to that are copies too, and no marks are put for them."""

    def program(machine: Machine) -> None:
        model = net().to("cuda:1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 60 * MS):
            images, labels = (each.to("cuda:0").to("cuda:1") for each in (images, labels))
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    recorded = run(program, GpuSpec(pageable_bytes_per_s=bytes_per_s), GpuSpec())
    assert recorded.device == "cuda:1"
    assert_true(recorded, *recorded.machine.gpus)


def test_of_a_model_that_is_split_by_hand_the_device_of_the_loss_is_recorded(run: Run) -> None:
    """As docs/how-it-measures.md says: what the first device computes after the last one counts as idle. That is the
    backward pass of its layer, 8 ms, while the next batch is made."""

    def program(machine: Machine) -> None:
        first, second = nn.Linear(8, 8).to("cuda:0"), nn.Linear(8, 2).to("cuda:1")
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        for images, labels in loader(60, 60 * MS):
            loss = cross_entropy(second(first(images.to("cuda:0")).to("cuda:1")), labels.to("cuda:1"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    recorded = run(program, GpuSpec(), GpuSpec())
    assert recorded.device == "cuda:1"
    lost = 100 * 8 * MS * recorded.facts.window.count / recorded.facts.window.wall_ns
    off = dict.fromkeys(PARTS, 0.0) | {"compute": -lost, "input": lost}
    assert recorded.off_by(*recorded.machine.gpus) == pytest.approx(off, abs=0.1)


@pytest.mark.parametrize("late_ms", [0, 30], ids=["all come at once", "another rank is late"])
def test_a_rank_of_several_whose_gradients_and_losses_are_reduced(run: Run, late_ms: int) -> None:
    """Waiting for another rank is work of the device's: the report tells it by when ranks arrive."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        group = ProcessGroup(machine, late_ns=late_ms * MS)
        reduce_gradients(group, model, (5 * MS, 25 * MS))
        for images, labels in loader(60, 70 * MS):
            loss = cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            group.all_reduce(MS)
            loss.item()

    assert_true(run(program))
