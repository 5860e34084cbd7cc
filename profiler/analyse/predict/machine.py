"""Clocks of many replays at once, and what works by them.

Making a batch is reading, then waiting, then computing. All that compute share the CPUs evenly, the training among
them; reads share the storage. Each of these has a clock that runs at the speed its users have, so that what a worker
has to do ends at a fixed time of that clock, and a change of speed touches one number a row instead of one a worker.
Every pass of the loop handles the next event of every row.
"""

from __future__ import annotations

import numpy as np

from .rows import DrawnTimes, Ints, ReplayRows
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
