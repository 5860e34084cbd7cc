"""The protocol of torch's DataLoader, event by event, for many settings at once.

As `torch/utils/data/dataloader.py` has it: an epoch begins with W x P batches ordered, batch i from worker i mod W. A
worker takes up its orders one after the other. The training takes finished batches from one queue in the order in which
they were finished, and pays the hand-off for each; one that comes before its turn is laid aside, or given to the
training at once where `in_order` is off. When a batch is handed over the training draws the indices of another and
orders that: from the next worker in turn, or, out of order, the next in turn with less than its share under way. So
finished batches whose turn it is not yet count among the W x P.

The physics of making is in `machine`. A device takes up a step when the training begins it or its last step is done,
and ends it no sooner than the training has. Whether copies are part of `device` or of `host`, and exposed or overlapped
with that, is the recording's business.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .machine import MAIN, ReplayMachine
from .rows import DrawnTimes, Flags, Ints, Replayed, ReplayRows
from .workload import Times

RUN_AHEAD = 4
"""Steps that a training may be ahead of a device it does not wait for: as many common ones as a launch queue of 1,024
kernels holds. It smooths single late batches and changes no average."""
_IDLE, _ARRIVAL, _HANDOFF, _DRAW, _HOST, _DEVICE, _START, _DONE = range(8)
"""What the training process is at."""
_WIDTHS = (16, 64)
"""Rows of at most so many workers are replayed together: a pass costs its calls more than its numbers."""


def replay(rows: ReplayRows, drawn: DrawnTimes, steps: int) -> Replayed:
    """So many steps of each row."""
    bins = np.searchsorted(_WIDTHS, rows.workers)
    parts, places = [], []
    for width in np.unique(bins):
        chosen = (bins == width).nonzero()[0]
        parts.append(_Replay(rows.at(chosen), drawn, steps).replayed())
        places.append(chosen)
    return Replayed.joined(parts).at(np.argsort(np.concatenate(places)))


class _Replay(ReplayMachine):
    """The training's side: what it takes, and orders."""

    def __init__(self, rows: ReplayRows, drawn: DrawnTimes, steps: int) -> None:
        super().__init__(rows, drawn, steps)
        n, batches = self.n, self.most_batches
        self.host = drawn.host[:, self.place]
        self.device = None if drawn.device is None else drawn.device[:, self.place]
        self.epoch = np.where(rows.epoch > 0, rows.epoch, batches + 1)
        # A worker's orders are a chain, each batch followed by the next of the same worker. Those that open an epoch
        # are known beforehand, where they come all at once; `last` is the end so far.
        number = np.arange(batches)
        after = number % self.epoch[:, None] + rows.workers[:, None]
        self.draws = rows.drawing > 0
        filled = np.where(self.draws, 0, np.minimum(rows.outstanding, self.epoch))[:, None]
        self.following = np.where(after < filled, number + rows.workers[:, None], -1)
        self.last = np.full((n, self.width), -1)
        self.held = np.zeros((n, self.width), np.int64)
        """Batches of each worker that were ordered and not handed over."""
        self.taken, self.issued, self.wanted = (np.zeros(n, np.int64) for _ in range(3))
        self.epoch_end, self.turn, self.opening = (np.zeros(n, np.int64) for _ in range(3))
        """`opening`: orders of a new epoch whose indices are still to be drawn."""
        self.aside = np.zeros((n, batches), bool)
        self.at = np.full(n, _DONE)
        self.asked, self.host_begin, self.device_end = np.zeros(n), np.zeros(n), np.zeros(n)
        self.ends, self.stalls = np.zeros((n, steps)), np.zeros((n, steps))
        self.order = np.zeros((n, steps), np.int64)

    def replayed(self) -> Replayed:
        self.fetch(np.arange(self.n))
        self.run()
        return Replayed(self.ends, self.stalls, self.order, *self.lost)

    def handed_in(self, row: Ints, arrives: Times) -> None:
        idle = self.at[row] == _IDLE
        if idle.any():
            self.until(row[idle], arrives[idle], _ARRIVAL)

    def main_events(self, row: Ints) -> None:
        at = self.at[row]
        self.next[MAIN, row] = np.inf
        self.demand[row], self.computes[row] = 0.0, False
        for was, then in (
            (_START, self.open), (_ARRIVAL, self.take), (_HANDOFF, self.taken_over), (_DRAW, self.drew),
            (_HOST, self.host_done), (_DEVICE, self.fetch),
        ):  # fmt: skip
            chosen = row[at == was]
            if len(chosen):
                then(chosen)

    def until(self, row: Ints, when: Times, at: int) -> None:
        """The training waits until then."""
        if not len(row):
            return
        self.at[row] = at
        self.idle[row] = 0.0
        self.next[MAIN, row] = self.clocks[MAIN, row] + np.maximum(0.0, when - self.now[row])

    def works(self, row: Ints, takes: Times, cpus: Times | float, at: int) -> None:
        self.at[row] = at
        self.idle[row] = 0.0
        self.demand[row], self.computes[row] = cpus, True
        self.next[MAIN, row] = self.clocks[MAIN, row] + takes

    def fetch(self, row: Ints) -> None:
        self.asked[row] = self.now[row]
        wanted = self.wanted[row]
        done = wanted >= self.steps
        if done.any():
            self.at[row[done]], self.next[:, row[done]] = _DONE, np.inf
            row, wanted = row[~done], wanted[~done]
        opens = wanted == self.epoch_end[row]
        if opens.any():
            self.until(row[opens], self.now[row[opens]] + self.rows.start[row[opens]], _START)
            row, wanted = row[~opens], wanted[~opens]
        if len(row):
            self.look(row, wanted)

    def look(self, row: Ints, wanted: Ints) -> None:
        """For the batch wanted: laid aside before, or next in the queue, or still to come."""
        aside = self.aside[row, wanted]
        if aside.any():
            self.deliver(
                row[aside], wanted[aside], wanted[aside] % self.epoch[row[aside]] % self.rows.workers[row[aside]]
            )
            row = row[~aside]
        taken = self.taken[row]
        some = self.finished[row] > taken
        none = row[~some]
        if len(none):
            self.at[none] = _IDLE
            self.idle[none] = self.wanted[none] + self.epoch[none] != self.epoch_end[none]
            row, taken = row[some], taken[some]
        if len(row):
            arrives = self.arrives[row, taken]
            here = arrives <= self.now[row]
            self.take(row[here])
            self.until(row[~here], arrives[~here], _ARRIVAL)

    def take(self, row: Ints) -> None:
        if len(row):
            self.works(row, self.rows.handoff[row], 1.0, _HANDOFF)

    def taken_over(self, row: Ints) -> None:
        place = self.taken[row]
        batch, worker = self.arrived[row, place], self.arrived_from[row, place]
        self.taken[row] += 1
        wanted = self.wanted[row]
        early = self.rows.in_order[row] & (batch != wanted)
        if not early.any():
            self.deliver(row, batch, worker)
            return
        now = ~early
        if now.any():
            self.deliver(row[now], batch[now], worker[now])
        self.aside[row[early], batch[early]] = True
        self.look(row[early], wanted[early])

    def deliver(self, row: Ints, batch: Ints, worker: Ints) -> None:
        self.held[row, worker] -= 1
        self.order[row, self.wanted[row]] = batch
        draws = self.draws[row] & (self.issued[row] < self.epoch_end[row])
        if draws.any():
            self.draw(row[draws])
            row = row[~draws]
        self.issue(row)
        self.begin_step(row)

    def draw(self, row: Ints) -> None:
        self.works(row, self.rows.drawing[row], 1.0, _DRAW)

    def drew(self, row: Ints) -> None:
        """The indices of a batch: of the first ones of an epoch, or of another one in place of one handed over."""
        opening = self.opening[row] > 0
        self.issue(row)
        self.begin_step(row[~opening])
        row = row[opening]
        self.opening[row] -= 1
        more = self.opening[row] > 0
        self.draw(row[more])
        self.look(row[~more], self.wanted[row[~more]])

    def begin_step(self, row: Ints) -> None:
        step, now = self.wanted[row], self.now[row]
        since = self.asked[row] if self.device is None else self.device_end[row]
        stall = np.maximum(0.0, now - since)
        self.stalls[row, step] = stall
        self.lost[4, row] += stall * (step + self.epoch[row] == self.epoch_end[row])
        self.host_begin[row] = now
        self.works(row, self.host[self.rows.draw[row], step] * self.rows.step[row], self.rows.main_cpus[row], _HOST)

    def host_done(self, row: Ints) -> None:
        step, now = self.wanted[row], self.now[row]
        self.wanted[row] += 1
        if self.device is None:
            self.ends[row, step] = now
            self.fetch(row)
            return
        takes = self.device[self.rows.draw[row], step] * self.rows.step[row]
        end = np.maximum(self.device_end[row], self.host_begin[row]) + takes
        self.device_end[row] = self.ends[row, step] = end = np.maximum(end, now)
        before = np.where(step >= RUN_AHEAD, self.ends[row, step - RUN_AHEAD], 0.0)
        goes_on = np.where(self.rows.synchronous[row], end, before)
        waits = goes_on > now
        self.until(row[waits], goes_on[waits], _DEVICE)
        if not waits.all():
            self.fetch(row[~waits])

    # Orders

    def open(self, row: Ints) -> None:
        """An epoch: its first orders all at once, or each when its indices are drawn."""
        begin = self.epoch_end[row]
        length = self.epoch[row]
        count = np.minimum(self.rows.outstanding[row], length)
        workers = self.rows.workers[row]
        self.epoch_end[row] = begin + length
        draws = self.draws[row]
        if draws.any():
            some = row[draws]
            self.issued[some], self.turn[some], self.opening[some] = begin[draws], 0, count[draws]
            self.draw(some)
            row, begin, count, workers = row[~draws], begin[~draws], count[~draws], workers[~draws]
        self.issued[row] = begin + count
        self.turn[row] = count % workers
        self.at[row] = _IDLE
        for worker in range(self.width):
            chosen = np.flatnonzero((worker < count) & (worker < workers))
            some, first = row[chosen], begin[chosen] + worker
            orders = -(-(count[chosen] - worker) // workers[chosen])
            self.batch[some, worker], self.held[some, worker] = first, orders
            self.last[some, worker] = first + (orders - 1) * workers[chosen]
            self.begin(some, np.full(len(some), worker), first)

    def issue(self, row: Ints) -> None:
        row = row[self.issued[row] < self.epoch_end[row]]
        if not len(row):
            return
        worker = self.turn[row]
        loose: Flags = ~self.rows.in_order[row]
        if loose.any():
            worker[loose] = self.free_worker(row[loose])
        batch = self.issued[row]
        self.issued[row] += 1
        self.turn[row] = (worker + 1) % self.rows.workers[row]
        self.held[row, worker] += 1
        free = self.batch[row, worker] < 0
        queued = ~free
        self.following[row[queued], self.last[row[queued], worker[queued]]] = batch[queued]
        self.last[row, worker] = batch
        if free.any():
            row, worker, batch = row[free], worker[free], batch[free]
            self.batch[row, worker] = batch
            self.begin(row, worker, batch)

    def free_worker(self, row: Ints) -> npt.NDArray[np.intp]:
        """The next in turn that has less than its share under way."""
        workers = self.rows.workers[row][:, None]
        turns = (self.turn[row][:, None] + np.arange(self.width)) % workers
        share = self.rows.outstanding[row][:, None] // workers
        first = (self.held[row[:, None], turns] < share).argmax(axis=1)
        chosen: npt.NDArray[np.intp] = turns[np.arange(len(row)), first]
        return chosen
