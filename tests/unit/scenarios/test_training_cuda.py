"""A scenario's training on a GPU, played by the stand-in: its copies are recorded once, whoever begins them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.cuda import Machine, installed
from support.cuda.clock import MS
from support.cuda.machine import INPUT
from support.cuda.programs import WIDTH, compute, net
from whyidle.devices.choose import choose
from whyidle.pipelines.protocol import Batch, Queue
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import PAUSE, STEP, PauseKind, StepFlag
from whyidle.scenarios.copying import BatchCopier
from whyidle.scenarios.loader import watched
from whyidle.scenarios.recorded import recorded_on
from whyidle.scenarios.training import TorchTraining

BATCHES, EPOCHS, SIZE = 8, 2, 4
INPUTS_BYTES, TARGETS_BYTES = SIZE * WIDTH * 4, SIZE * 8


class Loader:
    """Begins to copy a batch while the one before it is still to be trained, where it is `ahead`."""

    name = "test"
    queue: Queue | None = None

    def __init__(self, machine: Machine, copier: BatchCopier, ahead: bool) -> None:
        self._machine, self._copier, self._ahead = machine, copier, ahead

    def __len__(self) -> int:
        return BATCHES

    def epoch(self, number: int) -> Iterator[Batch]:
        made = self._made()
        following = next(made)
        for _ in range(BATCHES):
            batch, further = following, next(made, None)
            if further is not None:
                following = self._copier.start(self._copier.pin(further)) if self._ahead else further
            yield batch

    def close(self) -> None: ...

    def _made(self) -> Iterator[Batch]:
        for _ in range(BATCHES):
            self._machine.host(5 * MS, INPUT)
            yield Batch(torch.zeros(SIZE, WIDTH), torch.zeros(SIZE, dtype=torch.int64), tuple(range(SIZE)))


@pytest.mark.parametrize("ahead", [False, True])
def test_copies_of_a_loader_of_ours_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    machine = installed(Machine(), monkeypatch)
    machine.durations = compute(20 * MS)
    device = choose("cuda")
    copier, model = BatchCopier(device), net().to("cuda")
    training = TorchTraining(
        model,
        lambda trained, batch: torch.nn.functional.cross_entropy(trained(batch.inputs), batch.targets),
        torch.optim.SGD(model.parameters(), 0.1),
    )
    folder = create_run(tmp_path / "run", {"device": device.describe()})
    with recorded_on(device, folder):
        loader = watched(Loader(machine, copier, ahead))
        for _ in range(EPOCHS):
            for number, batch in enumerate(loader):
                training.step(copier.deliver(batch))
                if number == 3:
                    training.read_loss()
    steps, pauses = open_run(folder).records(STEP), open_run(folder).records(PAUSE)["what"].tolist()
    # The first batch of an epoch is copied in its own step: as torch is asked, each tensor for itself.
    flags = ([False] + [ahead] * (BATCHES - 1)) * EPOCHS
    assert ((steps["flags"] & StepFlag.COPIED_AHEAD) > 0).tolist() == flags
    whole = INPUTS_BYTES + (TARGETS_BYTES if ahead else 0)
    assert steps["copy_bytes"].tolist() == ([INPUTS_BYTES] + [whole] * (BATCHES - 1)) * EPOCHS
    counts = {what: pauses.count(what) for what in (PauseKind.COPY, PauseKind.SYNC, PauseKind.STREAM_WAIT)}
    further, waits = (EPOCHS, EPOCHS * (BATCHES - 1)) if ahead else (EPOCHS * BATCHES, 0)
    assert counts == {PauseKind.COPY: further, PauseKind.SYNC: EPOCHS, PauseKind.STREAM_WAIT: waits}
    assert not list(folder.glob("*notices*"))
