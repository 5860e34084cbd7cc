"""One recorded training of a scenario, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # An optimizer imports it, which takes a second: processes forked from a warm one need not.
import torchvision

import whyidle
from whyidle.devices.choose import choose
from whyidle.devices.protocol import Device
from whyidle.errors import DeviceOutOfMemory, WhyidleError
from whyidle.pipelines.protocol import Batch, Pipeline, Settings
from whyidle.pipelines.registry import factory
from whyidle.record.run import update_run

from .copying import BatchCopier
from .feeds import NoTraining, SyntheticPipeline
from .loader import EpochByEpoch, watched
from .output import redirect_output
from .rank import ALONE, Rank
from .ranks import train_ranks
from .recorded import recorded_on
from .registry import scenario
from .scenario import DataRequest, Scenario, ScenarioData
from .training import Training
from .variant import TrainingPhase, Variant


@dataclass(frozen=True, kw_only=True)
class TrialSpec(Variant):
    """Everything a trial is."""

    scenario: str
    data: str
    folder: str
    """The run folder; it exists."""
    prefetch: int = 2
    log_every: int = 10
    """The loss is read, and so waited for, every so many steps."""
    limit: int | None = None
    """Record every kernel of a few steps."""
    seed: int = 0

    @classmethod
    def of(cls, variant: Variant, **rest: Any) -> TrialSpec:
        """A variant, with what all cells of a comparison have in common."""
        return cls(**{name: getattr(variant, name) for name in variant.__dataclass_fields__}, **rest)

    @property
    def stretches(self) -> tuple[TrainingPhase, ...]:
        """The stretches of the training; without a plan one of so many epochs, or one that the iterations end."""
        return self.phases or (TrainingPhase(epochs=self.epochs or sys.maxsize, augment=self.augment),)


SMALL = ("accuracy", "loss", "samples")
"""Of an evaluation, what is kept of every epoch."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class TrialEnd:
    """How a trial ended, as run.json's `ended.status` says it."""

    OK = "ok"
    OOM = "oom"
    FAILED = "failed"
    STOPPED = "stopped"


def run_trial(spec: TrialSpec) -> None:
    """Train and say in run.json how it ended. Ends the process; its output goes to the run folder."""
    folder = Path(spec.folder)
    redirect_output(folder)
    status, error = TrialEnd.OK, None
    try:
        if spec.ranks > 1:
            train_ranks(spec, folder, _train)
        else:
            _train(spec, folder)
    except KeyboardInterrupt:
        status, error = TrialEnd.STOPPED, "stopped by Ctrl-C"
    except (DeviceOutOfMemory, torch.OutOfMemoryError) as problem:
        status, error = TrialEnd.OOM, str(problem).splitlines()[0]
    except WhyidleError as problem:
        status, error = TrialEnd.FAILED, str(problem)
    except Exception as problem:
        # The table of the comparison goes on; the whole story is in the trial's output file.
        traceback.print_exc()
        status, error = TrialEnd.FAILED, f"{type(problem).__name__}: {problem}".splitlines()[0]
    update_run(folder, {"ended": {"status": status, "error": error, "exit_code": int(status != TrialEnd.OK)}})
    sys.stdout.flush()
    sys.stderr.flush()
    # Loaders with native threads (DALI) may hang or crash in interpreter exit after an error.
    os._exit(0 if status == TrialEnd.OK else 1)


def _train(spec: TrialSpec, folder: Path, rank: Rank = ALONE) -> None:
    seed(spec.seed)
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    device = choose(rank.device(spec.device))
    rank.tell(folder, {"device": device.describe(), "torch": torch.__version__, "environment": _environment(device)})
    with contextlib.closing(Trained(spec, device, rank)) as trained:
        rank.tell(folder, {"plan": {"steps": trained.steps, "steps_per_epoch": trained.steps_per_epoch}})
        rank.meet()
        with recorded_on(device, folder, rank.number):
            trained.run(folder)


class Trained:
    """A training by plan: its data, loader and net, the epochs and what came of them."""

    def __init__(self, spec: TrialSpec, device: Device, rank: Rank = ALONE) -> None:
        self._spec = spec
        self._rank = rank
        self._device = device
        self._scenario: Scenario = scenario(spec.scenario)
        self._copier = BatchCopier(device)
        self._augmented = spec.stretches[0].augment
        self._data = self._open(self._augmented)
        self._training = self._start()
        self._pipeline = self._loader(self._data)
        self.steps_per_epoch = len(self._pipeline)
        self._held_out = None if spec.evaluate == "never" else self._open(False, "test")
        self._done = 0
        self._losses: list[float] = []
        self._epochs: list[dict[str, Any]] = []
        if self.steps_per_epoch == 0:
            raise WhyidleError(
                f"{len(self._data)} samples do not fill one batch of {spec.batch_size}. Use a smaller --batch-sizes, "
                "or more data."
            )

    @property
    def steps(self) -> int:
        """How many the stop rule gives."""
        if self._spec.iterations is not None:
            return self._spec.iterations
        return sum(phase.epochs for phase in self._spec.stretches) * self.steps_per_epoch

    def run(self, folder: Path) -> None:
        begun = time.monotonic()
        loader = watched(self._pipeline)
        for number, phase, first in self._each_epoch():
            if first and self._enter(phase):
                loader = watched(self._pipeline, number)
            before = time.monotonic()
            finished = self._epoch(loader)
            evaluation = self._evaluate() if self._spec.evaluate == "epochs" else None
            self._epochs.append(
                {
                    "epoch": number,
                    "seconds": time.monotonic() - before,
                    "augment": phase.augment,
                    "loss": self._losses[-1] if self._losses else None,
                    "evaluation": evaluation,
                }
            )
            if finished:
                break
        self._device.synchronize()
        train_s = time.monotonic() - begun
        evaluation = self._epochs[-1]["evaluation"]
        if self._spec.evaluate == "end":
            evaluation = self._evaluate()
        # Their confusion belongs to the end; kept for every epoch it would fill run.json.
        for each in self._epochs:
            each["evaluation"] = each["evaluation"] and {k: v for k, v in each["evaluation"].items() if k in SMALL}
        said: dict[str, Any] = {"results": {"train_s": train_s, "epochs": self._epochs, "evaluation": evaluation}}
        if self._losses:
            said["loss"] = {"first": self._losses[0], "last": self._losses[-1]}
        self._rank.tell(folder, said)

    def close(self) -> None:
        self._pipeline.close()

    def _each_epoch(self) -> Iterator[tuple[int, TrainingPhase, bool]]:
        """(number, phase, whether the phase begins with it)."""
        number = 0
        for phase in self._spec.stretches:
            for within in range(phase.epochs):
                yield number, phase, within == 0
                number += 1

    def _enter(self, phase: TrainingPhase) -> bool:
        """Whether there is another loader from here on."""
        if phase.lr is not None:
            self._training.set_rate(phase.lr)
        if phase.augment == self._augmented:
            return False
        self._augmented = phase.augment
        self._pipeline.close()
        self._data = self._open(phase.augment)
        self._pipeline = self._loader(self._data)
        return True

    def _epoch(self, loader: EpochByEpoch) -> bool:
        """One pass; true when the training's last step was in it."""
        steps = self.steps
        for batch in loader:
            self._training.step(self._deliver(batch))
            self._done += 1
            if self._done % self._spec.log_every == 0 or self._done == steps:
                loss = self._training.read_loss()
                if loss is not None:
                    self._losses.append(loss)
            if self._done == steps:
                return True
        return False

    def _evaluate(self) -> dict[str, Any] | None:
        if not self._rank.leads:
            return None
        judge = partial(self._scenario.evaluate, net=self._spec.net, data=self._held_out, device=self._device)
        with whyidle.phase("evaluation"):
            self._device.synchronize()
            return self._training.evaluate(judge)

    def _open(self, augment: bool, split: str = "train") -> ScenarioData:
        spec = self._spec
        return self._scenario.open_data(
            DataRequest(
                folder=Path(spec.data),
                net=spec.net,
                augment=augment,
                split=split,
                store=spec.store,
                limit=spec.limit,
                seed=spec.seed,
            )
        )

    def _start(self) -> Training:
        spec = self._spec
        if spec.feed == "loader-only":
            return NoTraining()
        training = self._scenario.training(
            spec.net, self._device, spec.batch_size, self._data, self._rank.wrap, spec.ranks
        )
        net = self._scenario.profile_net(spec.net)
        self._rank.connect(training, self._device, net, spec.interconnect, Path(spec.folder))
        return training

    def _loader(self, data: ScenarioData) -> Pipeline:
        spec = self._spec
        settings = self._rank.share(Settings(spec.batch_size, spec.workers, spec.prefetch, seed=spec.seed))
        if spec.feed == "synthetic":
            return SyntheticPipeline(data, settings, self._copier)
        return factory(spec.pipeline)(data, settings, self._copier)

    @property
    def _deliver(self) -> Callable[[Batch], Batch]:
        return self._copier.deliver if self._spec.feed == "real" else _as_it_is


def _as_it_is(batch: Batch) -> Batch:
    return batch


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def _environment(device: Device) -> dict[str, Any]:
    """What a run was made with, beyond what every recording says: the versions that studies compare.

    Versions of what computes and loads; those of CUDA and cuDNN where torch was built with them.
    """
    cuda = device.kind == "cuda"
    return {
        "torchvision": torchvision.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,  # type: ignore[no-untyped-call]
        "gpu": torch.cuda.get_device_name(device.torch_device) if cuda else None,
        "threads": torch.get_num_threads(),
        "threads_asked": {name: os.environ[name] for name in THREADS if name in os.environ},
    }
