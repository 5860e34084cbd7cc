"""What runs, on what, how far it is, and when it will be done."""

from __future__ import annotations

from dataclasses import replace

from ...analyse.recent.snapshot import UNDER_WAY, Snapshot
from ...analyse.run.worker_deaths import said_of
from ..render import bars
from . import words
from .lines import Row, cut, flow, safe, wrapped
from .options import Options

_STATE = {"running": ("●", "*", "green"), "starting": ("○", "o", "yellow"), "watching": ("●", "*", "green")}


QUIET_SECONDS = 5.0
"""Without a step for so long is worth telling."""


def header(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Two rows; the third (detail 1) has device and time."""
    state = _state(view, options)
    title = cut(safe(view.title), max(8, width - state.cells - 3), options.ascii_only)
    rows = [Row(" ").add(title, "bold").to(width - state.cells).join(state)]
    if view.state != "watching":
        rows.append(_progress(view, width, options))
    alone = len(view.devices) == 1 and view.device == view.devices[0].name
    name, beside = "" if alone else safe(view.device), _beside(view)
    if detail and (name or beside.cells):
        name = cut(name, max(8, width - beside.cells - 4), options.ascii_only)
        rows.insert(1, Row(" ").add(name).to(width - beside.cells).join(beside))
    if view.deaths:
        texts = wrapped(f"A WORKER DIED: {said_of(view.deaths)}", max(8, width - 1))
        rows += [Row(" ").add(text, "bold red") for text in texts]
    if view.stand_in:
        said = safe(f"STAND-IN DATA: generated, in place of {view.stand_in}")
        rows.append(Row(" ").add(cut(said, width - 1, options.ascii_only), "bold yellow"))
    return rows


def _state(view: Snapshot, options: Options) -> Row:
    if options.paused:
        return Row(f"{options.sign('‖', '||')} paused", "bold yellow")
    sign, ascii_sign, style = _STATE.get(view.state, ("■", "#", "red"))
    if view.state == "ok":
        style = "green"
    said = words.ending(view)
    if view.state == "watching":
        said = "no steps: accelerators and machine alone"
    return Row(f"{options.sign(sign, ascii_sign)} {said}{options.note and f'; {options.note}'}", f"bold {style}")


def _beside(view: Snapshot) -> Row:
    batch = f"batch {view.batch_size}"
    said = [] if view.batch_size is None or batch in view.title else [batch]
    if view.ranks > 1:
        said.append(f"rank {view.rank} of {view.ranks}")
    return Row(", ".join(said), "dim")


def far(view: Snapshot) -> list[str]:
    """How far a run is, the most telling first: state, steps, what is left, the epoch, the time so far."""
    said = [words.ending(view), *(["stand-in data"] if view.stand_in else [])]
    if not view.steps:
        return said if view.state in UNDER_WAY else [*said, words.NO_STEPS]
    said.append(f"{view.steps}/{view.planned_steps} steps" if view.planned_steps else f"{view.steps} steps")
    said += _left(view)
    if view.elapsed_s is not None:
        said.append(f"{words.duration(view.elapsed_s)}{' so far' if view.state == 'running' else ''}")
    return said


def _left(view: Snapshot) -> list[str]:
    said = []
    running = view.state == "running"
    if running and view.quiet_s is not None and view.quiet_s >= QUIET_SECONDS:
        said.append(f"no step for {words.duration(view.quiet_s)}")
    if running and view.left_s is not None:
        said.append(f"{words.duration(view.left_s)} left")
    if view.epoch is not None:
        about = "about " if view.epoch_estimated else ""
        of = f" {view.epoch_done}/{about}{view.epoch_steps}" if view.epoch_done is not None and view.epoch_steps else ""
        # The whole run's steps say as much where there is one epoch.
        said.append(f"epoch {view.epoch + 1}{of if view.planned_steps is None else ''}")
        if running and view.left_s is None and view.epoch_left_s is not None:
            said.append(f"{words.duration(view.epoch_left_s)} left of it")
    return said


def _progress(view: Snapshot, width: int, options: Options) -> Row:
    if view.state == "starting" and not view.steps:
        return Row(" waiting for the first step of a training", "dim")
    done = None
    if view.planned_steps:
        done = view.steps / view.planned_steps
    elif view.epoch_steps and view.epoch_done is not None:
        done = view.epoch_done / view.epoch_steps
    text = flow([Row(said) for said in far(replace(view, stand_in=None))[1:]], width - 2, rows=1)[0].plain
    room = width - len(text) - 3
    row = Row(" ")
    if done is not None and room >= 8:
        full, empty = bars.gauge(min(1.0, done), room, options.ascii_only)
        row.add(full, "green").add(empty, "dim").add("  ")
    return row.add(text)
