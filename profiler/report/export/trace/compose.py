"""A trace of a run: which processes and tracks it has, and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ....analyse.ranks.membership import RankProcess, ranks_of
from ....analyse.run.analysis import Analysis
from ....analyse.timeline.timeline import Timeline, timelines
from ....errors import WhyidleError
from ....record.files import plain
from ....record.names import read_names
from ....record.reader import RecordFile, Records
from ....record.run import Run, Writer
from ....record.schema import SPAN, STEP
from ..steps import Axis, axis_of
from . import counters, device, loader, training
from .events import Tracks
from .scene import Scene
from .stretch import Extent, Stretch, extent_of


@dataclass(frozen=True)
class RankTrace:
    """What the trace shows of one rank."""

    timeline: Timeline
    run: Run
    writer: Writer
    info: dict[str, Any]
    spans: Records


@dataclass(frozen=True)
class RunTrace:
    """All that a trace can show; a stretch of it is written."""

    ranks: tuple[RankTrace, ...]
    axis: Axis
    extent: Extent
    analysis: Analysis


def trace_of(analysis: Analysis, runs: Sequence[Run]) -> RunTrace:
    """`runs`: those that were analysed.

    Raises:
        WhyidleError: no step was recorded, so there is no axis to lay anything out on.
    """
    shown = timelines(analysis, runs)
    if not shown:
        raise WhyidleError(
            f"{runs[0].folder} holds no step that the device has finished, so there is no trace. "
            "Export the recorded steps with `--format csv --table step_records`, the samples with `--table host`."
        )
    processes = {process.rank: process for process in ranks_of(runs)} if analysis.ranks else {}
    ranks = tuple(_rank(timeline, processes.get(timeline.rank), runs[0]) for timeline in shown)
    axis = axis_of(shown)
    return RunTrace(ranks, axis, extent_of(shown, axis, [rank.spans for rank in ranks]), analysis)


def _rank(timeline: Timeline, process: RankProcess | None, run: Run) -> RankTrace:
    if process is not None:
        run, writer, info = process.run, process.writer, process.info
    else:
        header = max(run.files(STEP), key=RecordFile.count).header
        writer, info = (header.rank, header.pid), run.info
    return RankTrace(timeline, run, writer, info, run.records(SPAN, writer))


def tracks_of(trace: RunTrace, stretch: Stretch) -> Tracks:
    """Every track of the stretch."""
    tracks = Tracks()
    for number, rank in enumerate(trace.ranks):
        scene = Scene(rank.timeline, trace.axis.ns(number, 0), stretch.low, stretch.high)
        _add_rank(tracks, rank, scene, several=len(trace.ranks) > 1)
    told: set[Path] = set()
    for number, rank in enumerate(trace.ranks):
        if rank.run.folder not in told:
            told.add(rank.run.folder)
            _add_samples(tracks, rank, trace.axis.ns(number, 0), stretch, of_several=len(trace.ranks) > 1)
    return tracks


def _add_rank(tracks: Tracks, rank: RankTrace, scene: Scene, several: bool) -> None:
    names = read_names(rank.run.folder)
    kind = rank.timeline.facts.device_kind
    who = f"rank {rank.timeline.rank}: " if several else ""
    title = str((rank.info.get("device") or {}).get("title") or kind)
    host = tracks.process(f"{who}training (process {rank.writer[1]})")
    steps, _ = training.add_training(tracks, scene, host, names)
    training.add_queue(tracks, scene, host)
    on_processor = kind == "cpu"
    work = host if on_processor else tracks.process(f"{who}device ({title})")
    device.add_parts(tracks, scene, work, on_processor)
    if not on_processor:
        device.add_work(tracks, scene, work)
    device.add_spans(tracks, scene, work, rank.spans)
    if len(scene.timeline.lanes.batches):
        made = loader.add_loader(tracks, scene, tracks.process(f"{who}loader"), names)
        training.add_flows(tracks, scene, host, steps, made)


def _add_samples(tracks: Tracks, rank: RankTrace, offset: int, stretch: Stretch, of_several: bool) -> None:
    timeline = rank.timeline
    of_host = f" of {timeline.host}" if of_several and timeline.host else ""
    kind = timeline.facts.device_kind
    if len(timeline.device):
        emulated = "emulated " if kind == "emulated" else ""
        pid = tracks.process(f"{emulated}devices{of_host}, by the sampler")
        counters.add_device_counters(tracks, pid, timeline.device, offset, stretch.low, stretch.high)
    if len(timeline.host_samples):
        pid = tracks.process(f"host{of_host}, by the sampler")
        counters.add_host_counters(tracks, pid, timeline.host_samples, offset, stretch.low, stretch.high)


def about(trace: RunTrace, stretch: Stretch) -> dict[str, Any]:
    """Describe the file within it."""
    info, axis = trace.analysis.info, trace.axis
    told: dict[str, Any] = {
        "made_by": f"whyidle {info.get('whyidle') or ''}".strip(),
        "run": trace.ranks[0].run.folder.name,
        "shown": stretch.why,
        "from_s": stretch.low / 1e9,
        "to_s": stretch.high / 1e9,
        "zero": "the start of the first step",
        "verdict": trace.analysis.verdict.title,
        "device": (info.get("device") or {}).get("title"),
        "stand_in_data": (info.get("dataset") or {}).get("stand_in"),
    }
    if axis.wall_ns is not None:
        told["zero_unix_ns"] = str(axis.wall_ns)
        told["zero_utc"] = datetime.fromtimestamp(axis.wall_ns / 1e9, UTC).isoformat(timespec="microseconds")
    if axis.aligned_by_wall_clock:
        told["hosts"] = "aligned by their wall clocks, which agree to milliseconds at best"
    if any(rank.timeline.facts.device_kind == "emulated" for rank in trace.ranks):
        told["emulated"] = "the device is emulated: its times are computed, not measured"
    return {name: plain(value) for name, value in told.items() if value is not None}
