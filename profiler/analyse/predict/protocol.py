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

Clocks of many replays at once, and what works by them. Making a batch is reading, then waiting, then computing. All
that compute share the CPUs evenly, the training among them; reads share the storage. Each of these has a clock that
runs at the speed its users have, so that what a worker has to do ends at a fixed time of that clock, and a change
of speed touches one number a row instead of one a worker. Every pass of the loop handles the next event of every
row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .rows import DrawnTimes, Flags, Ints, Replayed, ReplayRows
from .workload import Times

MOST_PASSES = 16
"""Times the batches of a row: each pass handles an event of it, of which a batch has ten at most."""
MOST_PLACES = 1 << 22
"""Batches of all rows."""
WAIT, READ, CPU, MAIN = range(4)
"""The clocks: of time itself, of readers, of workers that compute, of the training process."""


class ReplayMachine:
    """The workers of many replays, with what they are ordered to make. What the training does a subclass says.

    Raises:
        ArithmeticError: they are too large; or they do not come to an end, as with times that are no numbers.
    """

    def __init__(self, rows: ReplayRows, drawn: DrawnTimes, steps: int) -> None:
        n, width = len(rows), int(rows.workers.max())
        self.rows, self.steps, self.n, self.width = rows, steps, n, width
        self.most_batches = steps + int(rows.outstanding.max()) + 1
        if n * self.most_batches > MOST_PLACES:
            raise ArithmeticError(f"{self.most_batches} batches in each of {n} rows")
        self.place = np.arange(self.most_batches) % drawn.cpu.shape[1]
        self.made = [np.ascontiguousarray(part[:, self.place]).ravel() for part in (drawn.wait, drawn.read, drawn.cpu)]
        self.takes_time = [bool(part.any()) for part in self.made]
        self.begins = rows.draw * self.most_batches
        self.pace = rows.making / rows.threads
        self.clocks = np.zeros((4, n))
        self.now = self.clocks[WAIT]
        self.due = np.full((3 * n, width), np.inf)
        """When each worker will be through, by the clock of what it is at: [clock and row, worker]."""
        self.next = np.full((4, n), np.inf)
        """When the first worker of each row, or its training, will be through, by each clock: [clock, row]."""
        self.users = np.zeros((3, n))
        """Workers that are at something, by its clock: [clock, row]."""
        self.demand, self.computes = np.zeros(n), np.zeros(n, bool)
        """CPUs that the training uses, and whether it does."""
        self.idle = np.zeros(n)
        """1 where the training waits for workers, other than for the first batch of an epoch."""
        self.batch = np.full((n, width), -1)
        """What each worker is at; -1: nothing."""
        self.following = np.full((n, self.most_batches), -1)
        """The batch that the same worker makes after each; -1: none is ordered."""
        self.finished = np.zeros(n, np.int64)
        self.arrived = np.zeros((n, self.most_batches), np.int64)
        self.arrived_from = np.zeros((n, self.most_batches), np.int64)
        self.arrives = np.zeros((n, self.most_batches))
        """Finished batches in their order: which (`arrived`), by which worker (`arrived_from`), there when
        (`arrives`)."""
        self.lost = np.zeros((5, n))
        """Time lost in each row: see the `lost_...` of `Replayed`, in their order."""

    def main_events(self, row: Ints) -> None:
        """The training is through with what it was at."""
        raise NotImplementedError

    def handed_in(self, row: Ints, arrives: Times) -> None:
        """A batch will arrive."""
        raise NotImplementedError

    def run(self) -> None:
        rows, users, clocks = self.rows, self.users, self.clocks
        speed = np.ones((4, self.n))
        for _ in range(MOST_PASSES * self.most_batches):
            share = np.minimum(1.0, rows.cpus / np.maximum(users[CPU] * rows.threads + self.demand, 1e-9))
            speed[READ] = np.minimum(1.0, rows.storage / np.maximum(users[READ] * rows.threads, 1e-9))
            speed[CPU] = share / (1 + rows.contention * np.maximum(users[CPU] - 1, 0))
            # Only what the training computes is slowed: one that sleeps, or waits for its device, does so in time.
            part = np.minimum(1.0, self.demand)
            speed[MAIN] = np.where(self.computes, 1 / (part / share + 1 - part), 1.0)
            until = (self.next - clocks) / speed
            passes = until.min(axis=0)
            hit = until == passes
            over = passes == np.inf
            if over.any():
                if over.all():
                    return
                hit[:, over] = False
                passes[over] = 0.0
            clocks += speed * passes
            self.account(passes, speed)
            hit[READ] &= ~hit[WAIT]  # one worker of a row at a time; others at this instant come in the next pass
            hit[CPU] &= ~(hit[WAIT] | hit[READ])
            clock, row = np.nonzero(hit[:3])
            if len(row):
                self.worker_events(clock, row)
            row = hit[MAIN].nonzero()[0]
            if len(row):
                self.main_events(row)
        raise ArithmeticError("no end after so many passes")

    def account(self, passes: Times, speed: Times) -> None:
        """Add to `lost` what passed in each row while its training waited, by what its workers were at."""
        users, workers = self.users, self.rows.workers
        waits = self.idle * passes / workers
        slow = waits * users[CPU] * (1 - speed[CPU])
        reads = waits * users[READ] * (1 - speed[READ])
        none = waits * (workers - users.sum(axis=0))
        self.lost[0] += slow + self.computes * passes * (1 - speed[MAIN])
        self.lost[1] += reads
        self.lost[2] += none
        self.lost[3] += waits * workers - slow - reads - none

    def worker_events(self, clock: Ints, row: Ints) -> None:
        place = clock * self.n + row
        due = self.due[place]
        worker = due.argmin(axis=1)
        self.due[place, worker] = np.inf
        due[np.arange(len(row)), worker] = np.inf
        self.next[clock, row] = due.min(axis=1)
        self.users[clock, row] -= 1
        batch = self.batch[row, worker]
        for was, then in ((READ, self.wait), (WAIT, self.compute), (CPU, self.finish)):
            chosen = (clock == was).nonzero()[0]
            if len(chosen):
                then(row[chosen], worker[chosen], batch[chosen])

    def begin(self, row: Ints, worker: Ints, batch: Ints) -> None:
        if self.takes_time[READ]:
            left = self.work(READ, row, worker, batch)
            row, worker, batch = row[left], worker[left], batch[left]
        self.wait(row, worker, batch)

    def wait(self, row: Ints, worker: Ints, batch: Ints) -> None:
        if self.takes_time[WAIT] and len(row):
            left = self.work(WAIT, row, worker, batch)
            row, worker, batch = row[left], worker[left], batch[left]
        self.compute(row, worker, batch)

    def compute(self, row: Ints, worker: Ints, batch: Ints) -> None:
        if len(row):
            left = self.work(CPU, row, worker, batch)
            if len(left):
                self.finish(row[left], worker[left], batch[left])

    def work(self, clock: int, row: Ints, worker: Ints, batch: Ints) -> Ints:
        """Set workers to what runs by a clock; the places come back of those that have nothing of the kind to do."""
        takes = self.made[clock][self.begins[row] + batch] * self.pace[row]
        if clock == CPU:
            takes += self.rows.sharing[row]
        some = takes > 0
        left: Ints = (~some).nonzero()[0]
        if len(left):
            row, worker, takes = row[some], worker[some], takes[some]
        due = self.clocks[clock, row] + takes
        self.due[clock * self.n + row, worker] = due
        self.next[clock, row] = np.minimum(self.next[clock, row], due)
        self.users[clock, row] += 1
        return left

    def finish(self, row: Ints, worker: Ints, batch: Ints) -> None:
        place = self.finished[row]
        following = self.following[row, batch]
        delay = np.where(following >= 0, self.rows.delay[row] * self.rows.making[row], 0.0)
        arrives = self.now[row] + self.rows.latency[row] + delay
        self.arrived[row, place], self.arrived_from[row, place] = batch, worker
        self.arrives[row, place] = arrives
        self.finished[row] += 1
        self.batch[row, worker] = following
        self.handed_in(row, arrives)
        more = (following >= 0).nonzero()[0]
        if len(more):
            self.begin(row[more], worker[more], following[more])


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
