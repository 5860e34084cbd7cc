"""One recorded training of a scenario, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torchvision  # noqa: F401  (imported here so that processes forked from a warm one need not)

from stallscope.capture.session import Session, SpanRecorder
from stallscope.devices.choose import choose
from stallscope.devices.emulated import EmulatedDevice
from stallscope.devices.protocol import Device
from stallscope.errors import DeviceOutOfMemory, StallscopeError
from stallscope.pipelines.protocol import Dataset, Pipeline, Settings
from stallscope.pipelines.registry import factory
from stallscope.record.run import update_run

from . import ssd
from .copying import BatchCopier
from .output import redirect_output
from .training import Training


@dataclass(frozen=True)
class TrialSpec:
    """Everything a trial is. Stops after `epochs` or after `iterations`: exactly one is given."""

    scenario: str
    net: str
    pipeline: str
    batch_size: int
    device: str
    data: str
    folder: str
    """The run folder; it exists."""
    epochs: int | None = None
    iterations: int | None = None
    workers: int = 0
    prefetch: int = 2
    augment: bool = True
    log_every: int = 10
    """The loss is read, and so waited for, every so many steps."""
    limit: int | None = None
    activity_windows: bool = False
    """Record every kernel of a few steps."""
    seed: int = 0


class Ended:
    """How a trial ended, as run.json's `ended.status` says it."""

    OK = "ok"
    OOM = "oom"
    FAILED = "failed"
    STOPPED = "stopped"


def run_trial(spec: TrialSpec) -> None:
    """Train and say in run.json how it ended. Ends the process; its output goes to the run folder."""
    folder = Path(spec.folder)
    redirect_output(folder)
    status, error = Ended.OK, None
    try:
        _train(spec, folder)
    except KeyboardInterrupt:
        status, error = Ended.STOPPED, "stopped by Ctrl-C"
    except (DeviceOutOfMemory, torch.OutOfMemoryError) as problem:
        status, error = Ended.OOM, str(problem).splitlines()[0]
    except StallscopeError as problem:
        status, error = Ended.FAILED, str(problem)
    except Exception as problem:
        # The table of the comparison goes on; the whole story is in the trial's output file.
        traceback.print_exc()
        status, error = Ended.FAILED, f"{type(problem).__name__}: {problem}".splitlines()[0]
    update_run(folder, {"ended": {"status": status, "error": error, "exit_code": int(status != Ended.OK)}})
    sys.stdout.flush()
    sys.stderr.flush()
    # Loaders with native threads (DALI) may hang or crash in interpreter exit after an error.
    os._exit(0 if status == Ended.OK else 1)


def _train(spec: TrialSpec, folder: Path) -> None:
    seed(spec.seed)
    device = choose(spec.device)
    dataset = ssd.open_data(Path(spec.data), spec.net, spec.augment, spec.limit)
    settings = Settings(spec.batch_size, spec.workers, spec.prefetch, seed=spec.seed)
    with contextlib.ExitStack() as stack:
        if isinstance(device, EmulatedDevice):
            spans = SpanRecorder(folder)
            stack.callback(spans.close)
            device.sink = spans
        update_run(folder, {"device": device.describe(), "torch": torch.__version__})
        training = ssd.training(spec.net, device, spec.batch_size, dataset)
        copier = BatchCopier(device)
        pipeline = factory(spec.pipeline)(dataset, settings, copier)
        stack.callback(pipeline.close)
        steps = _planned_steps(spec, len(pipeline), dataset)
        update_run(folder, {"plan": {"steps": steps, "steps_per_epoch": len(pipeline)}})
        session = Session(folder, device)
        stack.callback(session.finish)
        if spec.activity_windows:
            session.watch_activity()
        _loop(spec, steps, pipeline, training, device, copier, session)


def _loop(
    spec: TrialSpec,
    steps: int,
    pipeline: Pipeline,
    training: Training,
    device: Device,
    copier: BatchCopier,
    session: Session,
) -> None:
    recorder = session.steps
    done = 0
    losses: list[float] = []
    for epoch in _epochs(spec):
        for fetched in session.fetches(partial(pipeline.epoch, epoch), epoch, pipeline.queue):
            batch = copier.deliver(fetched)
            if batch.copy is not None:
                recorder.copied(batch.copy)
            training.step(batch, recorder)
            done += 1
            if done % spec.log_every == 0 or done == steps:
                recorder.sync_begin()
                loss = training.read_loss()
                recorder.sync_end()
                if loss is not None:
                    losses.append(loss)
            if done == steps:
                break
        if done == steps:
            break
    device.synchronize()
    if losses:
        update_run(session.folder, {"loss": {"first": losses[0], "last": losses[-1]}})


def _epochs(spec: TrialSpec) -> Iterator[int]:
    epoch = 0
    while spec.epochs is None or epoch < spec.epochs:
        yield epoch
        epoch += 1


def _planned_steps(spec: TrialSpec, per_epoch: int, dataset: Dataset) -> int:
    """How many steps the stop rule gives."""
    if per_epoch == 0:
        raise StallscopeError(
            f"{len(dataset)} images do not fill one batch of {spec.batch_size}. "
            "Use a smaller --batch-sizes, or more images."
        )
    if spec.iterations is not None:
        return spec.iterations
    assert spec.epochs is not None
    return spec.epochs * per_epoch


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
