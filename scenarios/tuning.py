"""A scenario's training that `whyidle tune` starts: recorded at first, then trained on as the tuner orders.

`python -m whyidle.scenarios.tuning`; what to train is in the environment. What tuner and training say to each
other is the contract of `capture/tuning/takeover.py`, which does the same to programs of the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NoReturn

import torch

from whyidle.capture.tuning.guard import put_sockets_into
from whyidle.capture.tuning.switching import Switching
from whyidle.devices.choose import choose
from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.errors import DeviceOutOfMemory, WhyidleError
from whyidle.pipelines.protocol import Batch, Dataset, Pipeline, Settings
from whyidle.pipelines.registry import factory
from whyidle.record.run import update_run
from whyidle.record.tuning import Channel, LoaderSettings, Word

from .copying import BatchCopier
from .loader import watched
from .recorded import recorded_on
from .registry import scenario
from .scenario import DataRequest, ScenarioData
from .training import Training
from .trial import seed

SPEC = "WHYIDLE_TUNING"
SERIAL = "naive"
"""What the loaders that are torch's DataLoader are without workers."""
FIXED = {
    "in_order": "loaders of scenarios always keep the order",
    "persistent_workers": "loaders of scenarios always keep their workers",
}
LOG_EVERY = 10
"""The loss is read, and so waited for, every so many steps."""
UNCHANGED_S = 0.3
"""A queue that is not full and has not grown for so long grows no further."""


@dataclass(frozen=True)
class TuningSpec:
    """What to train, and with which settings it is first."""

    scenario: str
    net: str
    pipeline: str
    batch_size: int
    device: str
    data: str
    workers: int
    prefetch: int
    augment: bool
    limit: int | None
    seed: int
    tune: dict[str, Any]
    """As the contract has it."""

    @property
    def settings(self) -> LoaderSettings:
        some = self.workers > 0
        return LoaderSettings(
            self.workers,
            self.prefetch if some else None,
            batch_size=self.batch_size,
            pipeline=self.pipeline,
            persistent_workers=some,
        )


class Fetching:
    """The batches of one loader, pass after pass without an end: what it takes to begin a pass is part of its rate."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._epoch = -1
        self._batches: Iterator[Batch] = iter(())
        self.restart()

    def next(self) -> tuple[Batch, int]:
        batch = next(self._batches, None)
        if batch is None:
            self.restart()
            batch = next(self._batches)
        return batch, batch.samples

    def restart(self) -> None:
        self._epoch += 1
        self._batches = self._pipeline.epoch(self._epoch)

    def rest(self, seconds: float) -> None:
        """Until the queue is full: then the loader waits for whoever takes from it."""
        queue = self._pipeline.queue
        if queue is None:
            return
        until = time.monotonic() + seconds
        ready, since = -1, time.monotonic()
        while time.monotonic() < until:
            now = queue.ready()
            if now != ready:
                ready, since = now, time.monotonic()
            if now >= queue.capacity or (now > 0 and time.monotonic() - since > UNCHANGED_S):
                return
            time.sleep(0.002)

    def close(self) -> None:
        self._pipeline.close()

    def why_failed(self) -> str | None:
        return None


class TunedTraining:
    """The training of a scenario with whatever loader it is told."""

    def __init__(self, spec: TuningSpec, folder: Path, device: Device, dataset: Dataset) -> None:
        self._spec = spec
        self._folder = folder
        self._device = device
        self._dataset = dataset
        self._copier = BatchCopier(device)
        self._training: Training = scenario(spec.scenario).training(spec.net, device, spec.batch_size, dataset)
        self._steps = 0

    def record(self) -> None:
        """The first stretch, with the settings it begins with."""
        with contextlib.closing(self._pipeline(self._spec.settings)) as pipeline:
            if len(pipeline) == 0:
                raise WhyidleError(
                    f"{len(self._dataset)} samples do not fill one batch of {self._spec.batch_size}. Use a smaller "
                    "--batch-size, or more images."
                )
            with recorded_on(self._device, self._folder) as recording:
                recording.session.loader(self._spec.workers, self._spec.settings.prefetch_factor, 0)
                self._train(pipeline)
        self._device.synchronize()

    def _train(self, pipeline: Pipeline) -> None:
        """Until there are steps enough."""
        tune = self._spec.tune
        begun = time.monotonic()
        for batch in chain.from_iterable(repeat(watched(pipeline))):
            self._training.step(self._copier.deliver(batch))
            if self._logs():
                self._training.read_loss()
            took = time.monotonic() - begun
            enough = self._steps >= tune["after_steps"] and took >= tune["after_s"]
            if enough or (took >= tune["before_s"] and self._steps >= 8):
                return

    def obey(self, line: Channel) -> NoReturn:
        """Train as the tuner orders, until it says stop or is gone."""
        tuner = int(self._spec.tune["tuner"])
        switching = Switching(
            lambda settings, _: Fetching(self._pipeline(settings)),
            line,
            self._device,
            _end,
            lambda: os.getppid() == tuner,
        )
        try:
            while True:
                switching.border()
                fetched, _ = switching.next()
                self._training.step(self._copier.deliver(fetched))
                if self._logs():
                    self._training.read_loss()
        except Exception as error:
            traceback.print_exc()
            memory = isinstance(error, DeviceOutOfMemory | torch.OutOfMemoryError)
            switching.training_ended(f"{type(error).__name__}: {error}".splitlines()[0], memory)
            raise

    @property
    def steps(self) -> int:
        return self._steps

    def _logs(self) -> bool:
        self._steps += 1
        return self._steps % LOG_EVERY == 0

    def _pipeline(self, wanted: LoaderSettings) -> Pipeline:
        spec = self._spec
        size = wanted.batch_size or spec.batch_size
        if size != spec.batch_size and isinstance(self._device, EmulatedDevice):
            # Made for its check: is there memory enough?
            scenario(spec.scenario).training(spec.net, self._device, size, self._dataset)
        name = (wanted.pipeline or spec.pipeline) if wanted.num_workers else SERIAL
        settings = Settings(
            size, wanted.num_workers, wanted.prefetch_factor or 1, pin_memory=wanted.pin_memory, seed=spec.seed
        )
        return factory(name)(self._dataset, settings, self._copier)


def main() -> NoReturn:
    """Train, and end the process: loaders with native threads may hang or crash in interpreter exit."""
    spec = TuningSpec(**json.loads(os.environ[SPEC]))
    folder = Path(os.environ["WHYIDLE_RUN"])
    put_sockets_into(spec.tune["temporary"])
    line = Channel.of_training(folder)
    try:
        _tune(spec, folder, line)
    except WhyidleError as error:
        line.send(Word.REFUSED, why=str(error), steps=0)
    except Exception as error:
        traceback.print_exc()
        line.send(Word.REFUSED, why=f"{type(error).__name__}: {error}".splitlines()[0], steps=0)
    _end()


def _tune(spec: TuningSpec, folder: Path, line: Channel) -> None:
    seed(spec.seed)
    device = choose(spec.device)
    dataset = _open(spec)
    update_run(folder, {"device": device.describe(), "torch": torch.__version__})
    training = TunedTraining(spec, folder, device, dataset)
    training.record()
    line.send(
        Word.READY,
        settings=spec.settings,
        # Beginnings of passes are in the rates already, see `Fetching`.
        batches_per_epoch=None,
        samples=len(dataset),
        fixed=FIXED,
        device=device.kind,
        steps=training.steps,
    )
    training.obey(line)


def _open(spec: TuningSpec) -> ScenarioData:
    chosen = scenario(spec.scenario)
    return chosen.open_data(
        DataRequest(
            folder=Path(spec.data),
            net=spec.net,
            augment=spec.augment,
            store=chosen.stores[0],
            limit=spec.limit,
            seed=spec.seed,
        )
    )


def _end() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    main()
