"""Kineto's account of the GPU beside that of our marks; graphs of a compiler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whyidle.analyse.intervals import Intervals, clip, total, union
from whyidle.analyse.run.facts import facts_of
from whyidle.capture.recording import recording
from whyidle.record.run import open_run

from ..checks import NotMeasured, Seen, Stage
from ..programs.loop import Samples, net, spin, train
from ..rig import Done, Recording, Rig

stage = Stage("windows", "Kineto and CUDA graphs", 200)
NEAR_POINTS = 2.0
STEPS, LOAD_MS, COMPUTE_MS = 60, 40, 20
"""Long steps: between the first kernel and the planted work the host launches, slowed down by Kineto."""


@stage.check(f"the GPU's busy share by Kineto is within {NEAR_POINTS:.0f} points of compute and copy by marks")
def busy_union_of_Kineto(rig: Rig) -> Seen:  # noqa: N802
    """Of the same steps, looked at by both at once."""
    rig.needs("Kineto")
    from torch.profiler import ProfilerActivity, profile

    batches, model = torch.utils.data.DataLoader(Samples(STEPS, LOAD_MS)), net().cuda()
    folder = rig.place("kineto")
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        anchor_ns = time.time_ns() - time.monotonic_ns()
        with recording(folder, "cuda", sampler=False):
            train(model, batches, "cuda", spin(COMPUTE_MS))
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()
    return compared(folder, kernels(events, anchor_ns))


def kernels(events: Sequence[Any], anchor_ns: int) -> Intervals:
    """When the device worked at anything, on the monotonic clock. `anchor_ns`: how far the epoch's is ahead of that.

    Ranges that the program named are drawn over the device's work, and are none.
    """
    work = [e for e in events if "CUDA" in str(e.device_type()) and not _is_named(e)]
    spans = [(e.start_ns() - anchor_ns, e.end_ns() - anchor_ns) for e in work]
    if not spans:
        raise NotMeasured("Kineto recorded nothing of the device")
    return union(*np.array(spans, dtype=np.int64).T)


def _is_named(event: Any) -> bool:
    """Older torch does not tell."""
    return bool(getattr(event, "is_user_annotation", bool)())


def compared(folder: Path, busy: Intervals) -> Seen:
    facts = facts_of(open_run(folder))
    if facts is None:
        return Seen(False, "nothing was recorded that can be judged")
    theirs = 100 * total(clip(busy, facts.window.begin_ns, facts.window.end_ns)) / facts.window.wall_ns
    ours = 100 * (facts.parts.share("compute") + facts.parts.share("copy"))
    return Seen(
        abs(ours - theirs) <= NEAR_POINTS,
        f"Kineto {theirs:.1f} %, marks {ours:.1f} %",
        {"kineto": theirs, "marks": ours},
    )


@stage.check("a net compiled into CUDA graphs trains to the same losses, and no hook is off")
def graphs_of_a_compiler_and_windows(rig: Rig) -> Seen:
    rig.needs("compile(mode='reduce-overhead')")
    alone = rig.command(rig.program("compiled"))
    if alone.code:
        return Seen(None, f"it does not run here without us either: {alone.last}")
    return judged(alone, rig.run(rig.program("compiled")))


def judged(alone: Done, recorded: Recording) -> Seen:
    """`alone`: the same program without us."""
    if recorded.done.code:
        return Seen(False, f"exit code {recorded.done.code}: {recorded.done.last}")
    report = recorded.report
    notes = [str(note) for note in report["quality"]["notes"]]
    same = recorded.done.out == alone.out
    right = same and report["run"]["device"]["kind"] == "cuda" and not any("hook" in note for note in notes)
    return Seen(
        right,
        f"{'the same' if same else 'other'} losses; {report['verdict']['cause']}; {'; '.join(notes) or 'no notes'}",
    )
