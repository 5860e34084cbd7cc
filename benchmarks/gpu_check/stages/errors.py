"""Trainings that end badly: they end as they would have, and what was recorded until then is there."""

from __future__ import annotations

from ..checks import Seen, Stage
from ..rig import Recording, Rig

stage = Stage("errors", "Errors of the device, and memory that is full", 180)
LEAST_STEPS = 25
ENDED = "trained to the end"


@stage.check("the program's own traceback and exit code, and a report of the steps before")
def an_assertion_on_the_device(rig: Rig) -> Seen:
    return _ended_badly(rig, rig.run(rig.program("broken", "assert")), "assert", "device-side assert")


@stage.check("the program's own traceback and exit code, and a report of the steps before")
def out_of_memory(rig: Rig) -> Seen:
    return _ended_badly(rig, rig.run(rig.program("broken", "memory")), "memory", "out of memory")


@stage.check("the training goes on, and is recorded to its end")
def out_of_memory_that_is_caught(rig: Rig) -> Seen:
    return _went_well(rig.run(rig.program("broken", "retried")))


@stage.check("the training is recorded, with 256 MB of memory left")
def a_GPU_that_is_full(rig: Rig) -> Seen:  # noqa: N802
    alone = rig.command(rig.program("broken", "full"))
    if alone.code:
        return Seen(None, f"it does not run here without us either: {alone.last}")
    return _went_well(rig.run(rig.program("broken", "full")))


def _ended_badly(rig: Rig, recording: Recording, how: str, words: str) -> Seen:
    alone = rig.command(rig.program("broken", how))
    done = recording.done
    told = words in alone.err and words in done.err
    steps = _steps(recording)
    text = (
        f"exit code {done.code}, without us {alone.code}; {'its traceback' if told else 'no word'} of it; {steps} steps"
    )
    return Seen(told and done.code == alone.code != 0 and steps >= LEAST_STEPS, text)


def _went_well(recording: Recording) -> Seen:
    done, steps = recording.done, _steps(recording)
    text = f"exit code {done.code}, {steps} steps; {done.out.strip() or done.last}"
    return Seen(done.code == 0 and ENDED in done.out and steps >= LEAST_STEPS, text)


def _steps(recording: Recording) -> int:
    try:
        return int((recording.report["window"] or {}).get("steps", 0))
    except ValueError:
        return 0
