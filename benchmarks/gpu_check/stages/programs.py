"""Trainings under `whyidle run`, as users start them."""

from __future__ import annotations

from whyidle.record.run import open_run, processes
from whyidle.record.schema import DEVICE, HOST

from ..checks import Seen, Stage
from ..programs.loop import COMPUTE_MS, LOAD_MS
from ..rig import Recording, Rig, mono_of

stage = Stage("run", "Trainings under `whyidle run`", 130)
NEAR_POINTS = 5.0
INPUT_PERCENT = 100 * (1 - COMPUTE_MS / LOAD_MS)


@stage.check(
    f"exit code 0, a recording of cuda, {INPUT_PERCENT:.0f} ± {NEAR_POINTS:.0f} % waited for data, no hook off"
)
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
    recording = rig.run(rig.program("on_cpu"))
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
    return Seen(
        right, f"{kind}: {parts} %; verdict {report['verdict']['cause']}; {'; '.join(map(str, off)) or 'all hooks on'}"
    )
