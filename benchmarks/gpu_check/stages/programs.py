"""Trainings under `whyidle run`: as users start them, such as end badly, and ranks (one where there is one GPU)."""

from __future__ import annotations

import sys

import torch

from whyidle.record.notices import read_notices
from whyidle.record.run import open_run, processes
from whyidle.record.schema import DEVICE, HOST

from ..checks import Seen, Stage
from ..programs.loop import COMPUTE_MS, LOAD_MS
from ..rig import Done, Recording, Rig, mono_of

stage = Stage("run", "Trainings under `whyidle run`", 130)
errors = Stage("errors", "Errors of the device, and memory that is full", 180)
ranks = Stage("ranks", "DDP and FSDP2", 150)
NEAR_POINTS = 5.0
INPUT_PERCENT = 100 * (1 - COMPUTE_MS / LOAD_MS)
LEAST_STEPS = 25
ENDED = "trained to the end"
MOST_HOST_PERCENT = 10.0


@stage.check(f"exit code 0, on cuda, {INPUT_PERCENT:.0f} ± {NEAR_POINTS:.0f} % waited for data, no hook off")
def loop_of_the_quickstart(rig: Rig) -> Seen:
    return _as_planted(_quickstart(rig))


@stage.check("the same")
def all_of_it_on_a_stream_of_its_own(rig: Rig) -> Seen:
    return _as_planted(rig.run(rig.program("quickstart", "stream")))


@stage.check("the GPU is sampled within a second of the training's naming it, and only that one")
def first_sample_of_the_GPU(rig: Rig) -> Seen:  # noqa: N802
    folder = _quickstart(rig).folder
    training = processes(folder)[0]
    rows, hosts = open_run(folder).records(DEVICE), open_run(folder).records(HOST)
    if not len(rows):
        return Seen(False, f"no sample of {training.device.get('uuids')} in {len(hosts)} looks")
    after_s = (int(rows["t_ns"].min()) - mono_of(training.info["clock"]["time_ns"])) / 1e9
    devices = sorted(set(rows["device"].tolist()))
    text = f"{after_s:.2f} s after it was named, {len(rows)} samples; GPUs {devices}"
    return Seen(after_s <= 1.0 and len(devices) == 1, text)


@stage.check("a program on the processor ends with CUDA not initialised")
def cuda_is_left_alone(rig: Rig) -> Seen:
    recording = rig.run(rig.program("quickstart", "cpu"))
    said = recording.done.out.strip()
    kind = recording.report["run"]["device"]["kind"]
    return Seen(said == "CUDA is initialised: False" and kind == "cpu", f"{said}; recorded as {kind}")


@stage.check("what the program prints is the same with and without being recorded")
def output_of_the_program(rig: Rig) -> Seen:
    alone = rig.command(rig.program("quickstart"))
    recorded = _quickstart(rig).done
    return Seen((alone.code, alone.out) == (recorded.code, recorded.out), recorded.out.strip().replace("\n", "; "))


def _quickstart(rig: Rig) -> Recording:
    if "quickstart" not in rig.kept:
        rig.kept["quickstart"] = rig.run(rig.program("quickstart"))
    kept: Recording = rig.kept["quickstart"]
    return kept


def _as_planted(recording: Recording) -> Seen:
    if recording.done.code:
        return Seen(False, f"exit code {recording.done.code}: {recording.done.last}")
    report = recording.report
    kind, shares = report["run"]["device"]["kind"], recording.shares
    off = [note for note in report["quality"]["notes"] if "hook" in str(note)]
    right = kind == "cuda" and abs(shares["input"] - INPUT_PERCENT) <= NEAR_POINTS and not off
    parts = ", ".join(f"{name} {share:.1f}" for name, share in shares.items())
    hooks = "; ".join(map(str, off)) or "all hooks on"
    return Seen(right, f"{kind}: {parts} %; verdict {report['verdict']['cause']}; {hooks}")


@errors.check("the program's own traceback and exit code, and a report of the steps before")
def an_assertion_on_the_device(rig: Rig) -> Seen:
    return _ended_badly(rig, rig.run(rig.program("broken", "assert")), "assert", "device-side assert")


@errors.check("the program's own traceback and exit code, and a report of the steps before")
def out_of_memory(rig: Rig) -> Seen:
    return _ended_badly(rig, rig.run(rig.program("broken", "memory")), "memory", "out of memory")


@errors.check("the training goes on, and is recorded to its end")
def out_of_memory_that_is_caught(rig: Rig) -> Seen:
    return _went_well(rig.run(rig.program("broken", "retried")))


@errors.check("the training is recorded, with 256 MB of memory left")
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
    said = "its traceback" if told else "no word"
    text = f"exit code {done.code}, without us {alone.code}; {said} of it; {steps} steps"
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


@ranks.check("each rank is recorded on its own GPU and holds the contexts that it holds without us; no hook is off")
def ddp_without_a_current_device(rig: Rig) -> Seen:
    return _ranks(rig, "ddp")


@ranks.check(
    f"the same, and gathered weights are not waited for by the host: host and sync below {MOST_HOST_PERCENT:.0f} %"
)
def fsdp2(rig: Rig) -> Seen:
    return _ranks(rig, "fsdp")


def _ranks(rig: Rig, how: str) -> Seen:
    rig.needs("NCCL")
    count = min(2, torch.cuda.device_count())
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    launch += rig.program("ranks", how)[len(rig.python) :]
    alone = rig.command(launch, limit_s=45)
    if alone.code:
        return Seen(None, f"it does not run here without us either: {alone.last}")
    return judged_ranks(alone, rig.run(launch, limit_s=60), count)


def judged_ranks(alone: Done, recording: Recording, count: int) -> Seen:
    """`alone`: the same job without us."""
    if recording.done.code:
        return Seen(False, f"exit code {recording.done.code}: {recording.done.last}")
    found = {process.rank: process.device.get("name") for process in processes(recording.folder)}
    own = {rank: "cuda" if rank == 0 else f"cuda:{rank}" for rank in range(count)}
    shares, notices = recording.shares, read_notices(recording.folder)
    contexts = _contexts(recording.done)
    right = found == own and contexts == _contexts(alone) and shares["host"] + shares["sync"] < MOST_HOST_PERCENT
    parts = ", ".join(f"{name} {share:.1f}" for name, share in shares.items())
    text = f"{count} ranks: {found}; {parts} %; contexts {contexts}; {'; '.join(notices) or 'no notices'}"
    return Seen(right and not any("hook" in notice for notice in notices), text)


def _contexts(done: Done) -> list[str]:
    """What each rank said of the GPUs that it has touched."""
    return sorted(line for line in done.out.splitlines() if "holds a context" in line)
