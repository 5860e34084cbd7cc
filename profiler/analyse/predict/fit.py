"""The workload put right by what was really measured.

A workload that predicts settings, and learns from those that were tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...record.tuning import LoaderSettings
from .cases import Line, ReplayCase, prepare, rows_of, together
from .predict import FEW_SETTINGS, ns_per_batch, predict, serial
from .protocol import replay
from .rows import DrawnTimes, Flags, ReplayRows
from .workload import Prediction, Times, Workload


class ReplayModel:
    """Predicts settings by replaying a recorded run, corrected by what trials really gave."""

    def __init__(self, workload: Workload, *, step: Line | None = None, seed: int = 0) -> None:
        self._recorded = self._workload = workload
        self._step = step
        self._seed = seed

    @property
    def workload(self) -> Workload:
        """What settings are predicted with: what was recorded, corrected by what was learned."""
        return self._workload

    def predict(self, settings: Sequence[LoaderSettings]) -> list[Prediction]:
        """What the replay says of each setting, in their order."""
        return predict(self._workload, settings, seed=self._seed, step=self._step)

    def learn(self, trials: Sequence[tuple[LoaderSettings, float]], *, steady: bool = False) -> None:
        """Correct the workload by all trials so far, with their samples/s: each call begins from what was recorded.
        `steady`: rates are within epochs, without their beginnings."""
        self._workload = learned(self._recorded, trials, steady=steady, seed=self._seed)


TRIAL_SD = 0.015
"""Standard deviation that the log rate of a trial is taken to have here: small beside what the parameters may be off
by, so that what was measured is met. No estimate of the noise between runs, which `statistics.py` has."""
_HANDOFF_FLOOR_NS = 2e4
"""Added to a hand-off before its logarithm is taken, so that one of no length can grow."""
_NO_LIMIT = 64.0
"""Parallel reads that stand for a storage without limit."""
_STEPS, _SEQUENCES = FEW_SETTINGS
"""Those of few settings in `predict`, so that what is learned from a trial is right where it is predicted again."""
_ROUGH = 2
"""Sequences that a start of the search is judged by."""
_ROUNDS = 4
"""Steps of the search, at most."""
_ENOUGH = 0.5
"""What another step of the search must promise to gain, in squared standard deviations, to be made."""

_MOVES = np.array([0.02, 0.02, -0.02, 0.01, 0.05, -0.05])
"""By how much each parameter is moved to see what it changes; limits are lowered, since raising one that is not reached
changes nothing."""

# Parameters: logs of the scale of making, of that of steps, of CPUs; contention; logs of hand-off and parallel reads.
_MAKING, _STEP, _CPUS, _CONTENTION, _HANDOFF, _STORAGE = range(6)


@dataclass(frozen=True)
class _Prior:
    mean: Times
    sd: Times


def learned(
    workload: Workload, trials: Sequence[tuple[LoaderSettings, float]], *, steady: bool = False, seed: int = 0
) -> Workload:
    """The workload with such a scale, steps, CPUs, contention, hand-off and parallel reads that it predicts the trials.

    Least squares on log rates, held near the recorded values where the trials do not say otherwise: from one trial the
    parameters move that explain it with the least improbable change. `trials`: settings and samples/s, what
    `Prediction.samples_per_s` predicts; with `steady`, samples/s within epochs, without their beginnings.
    """
    measured = [(settings, rate) for settings, rate in trials if rate > 0]
    if not measured:
        return workload
    if steady:
        fitted = learned(replace(workload, batches_per_epoch=None), measured, seed=seed)
        return replace(fitted, batches_per_epoch=workload.batches_per_epoch)
    model = _Model(workload, [settings for settings, _ in measured], seed)
    target = np.log([rate for _, rate in measured])
    prior = _prior(workload)

    def cost(of: Times, sequences: int = _SEQUENCES) -> Times:
        misfit = (model.log_rates(of, sequences) - target) / TRIAL_SD
        away = (of - prior.mean) / prior.sd
        total: Times = (misfit**2).sum(axis=1) + (away**2).sum(axis=1)
        return total

    starts = _starts(prior, workload)
    best = starts[cost(starts, _ROUGH).argmin()]
    jacobian = np.zeros((len(target), len(best)))
    for _ in range(_ROUNDS):
        at = model.log_rates(np.vstack([best, best + np.diag(_MOVES)]))
        jacobian = (at[1:] - at[0]).T / _MOVES
        normal = jacobian.T @ jacobian / TRIAL_SD**2 + np.diag(prior.sd**-2)
        slope = jacobian.T @ (target - at[0]) / TRIAL_SD**2 + (prior.mean - best) / prior.sd**2
        whole = np.linalg.solve(normal, slope)
        if slope @ whole < _ENOUGH:
            break
        tries = _allowed(best + np.outer([1.0, 0.5, 0.15], whole), workload)
        costs = cost(np.vstack([best, tries]))
        if costs.argmin() == 0:
            break
        best = tries[costs.argmin() - 1]
    known = np.linalg.inv(jacobian.T @ jacobian / TRIAL_SD**2 + np.diag(prior.sd**-2)).diagonal() < prior.sd**2 / 4
    return _applied(workload, best, best - prior.mean, known)


def _prior(workload: Workload) -> _Prior:
    storage = workload.limits.storage_parallel
    mean = [
        np.log(workload.scale),
        0.0,
        np.log(workload.limits.cpus),
        workload.contention,
        np.log(workload.handoff_ns + _HANDOFF_FLOOR_NS),
        np.log(storage or _NO_LIMIT),
    ]
    sd = [0.3, 0.07, 0.2, 0.04, 0.5 if workload.handoff_known else 2.0, 0.3 if storage else 2.5]
    return _Prior(np.array(mean), np.array(sd))


def _starts(prior: _Prior, workload: Workload) -> Times:
    """The recorded values, and some from which the way is not flat: a limit that is not reached has no slope."""
    starts = [prior.mean]
    reads = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0] if workload.read_ns.any() else []
    handoffs = [1.0, 0.5, 2.0]
    if not workload.handoff_known:
        guesses = np.array([0.1, 0.5, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 12.0, 20.0]) * 1e6
        handoffs = [1.0, *(guesses / (workload.handoff_ns + _HANDOFF_FLOOR_NS))]
    for storage in [None, *reads]:
        for handoff in handoffs:
            for cpus in (1.0, 0.7):
                start = prior.mean.copy()
                start[_STORAGE] = start[_STORAGE] if storage is None else np.log(storage)
                start[_HANDOFF] += np.log(handoff)
                start[_CPUS] += np.log(cpus)
                starts.append(start)
    return _allowed(np.array(starts), workload)


def _allowed(parameters: Times, workload: Workload) -> Times:
    """The parameters brought within what can be: no more CPUs than there are, no contention or hand-off below
    nothing."""
    within = parameters.copy()
    within[:, _CPUS] = np.minimum(within[:, _CPUS], np.log(workload.limits.cpus))
    within[:, _CONTENTION] = np.clip(within[:, _CONTENTION], 0.0, 1.0)
    within[:, _HANDOFF] = np.maximum(within[:, _HANDOFF], np.log(_HANDOFF_FLOOR_NS))
    within[:, _STORAGE] = np.clip(within[:, _STORAGE], np.log(0.25), np.log(_NO_LIMIT))
    return within


def _applied(workload: Workload, parameters: Times, moved: Times, known: Flags) -> Workload:
    making, step, cpus, _, handoff, _ = np.exp(np.where(np.abs(moved) < 1e-6, 0.0, moved))
    storage = np.exp(parameters[_STORAGE])
    limited = storage < _NO_LIMIT / 2 and (known[_STORAGE] or workload.limits.storage_parallel is not None)
    return replace(
        workload,
        scale=float(workload.scale * making),
        host_ns=workload.host_ns * step,
        device_ns=None if workload.device_ns is None else workload.device_ns * step,
        contention=float(parameters[_CONTENTION]),
        handoff_ns=float((workload.handoff_ns + _HANDOFF_FLOOR_NS) * handoff - _HANDOFF_FLOOR_NS),
        handoff_known=bool(workload.handoff_known or known[_HANDOFF]),
        limits=replace(
            workload.limits,
            cpus=float(workload.limits.cpus * cpus),
            storage_parallel=float(storage) if limited else None,
        ),
    )


class _Model:
    """Log rates of the trials' settings, for many sets of parameters at once."""

    def __init__(self, workload: Workload, settings: list[LoaderSettings], seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.workload = workload
        self.cases, self.workloads, self.draws = prepare(workload, settings, _STEPS, _SEQUENCES, rng)
        self.drawn = together(self.draws)
        self.made = [k for k, case in enumerate(self.cases) if case.hands.workers]
        self.alone = [k for k, case in enumerate(self.cases) if not case.hands.workers]

    def log_rates(self, parameters: Times, sequences: int = _SEQUENCES) -> Times:
        """Log rates, [sets of parameters, trials]."""
        rates = np.zeros((len(parameters), len(self.cases)))
        if self.made:
            rates[:, self.made] = self._replayed(parameters, [self.cases[k] for k in self.made], sequences)
        for k in self.alone:
            load, drawn = self.workloads[self.cases[k].workload], self.draws[self.cases[k].workload]
            rates[:, k] = [_alone(load, drawn, each) for each in parameters]
        return rates

    def _replayed(self, parameters: Times, cases: list[ReplayCase], sequences: int) -> Times:
        one = rows_of(self.workloads, cases, _SEQUENCES)
        sets = len(parameters)
        many = one.at(np.tile(np.arange(len(one)), sets * sequences))
        by_case = np.repeat(parameters, len(one), axis=0)
        values = np.tile(np.exp(by_case), (sequences, 1))
        ratio = values[:, _HANDOFF] - _HANDOFF_FLOOR_NS
        sizes = np.array([self.workloads[case.workload].batch_size for case in cases])
        grows = np.tile(sizes / self.workload.batch_size, sets * sequences)
        rows: ReplayRows = replace(
            many,
            draw=many.draw + np.repeat(np.arange(sequences), sets * len(one)),
            making=values[:, _MAKING],
            step=values[:, _STEP],
            cpus=values[:, _CPUS],
            contention=np.tile(by_case[:, _CONTENTION], sequences),
            handoff=np.maximum(0.0, ratio) * grows,
            storage=np.where(values[:, _STORAGE] >= _NO_LIMIT, np.inf, values[:, _STORAGE]),
        )
        ends = replay(rows, self.drawn, _STEPS).ends
        ns = ns_per_batch(ends, rows.outstanding, rows.workers, rows.epoch)
        mean = ns.reshape(sequences, sets, len(one)).mean(axis=0)
        rates: Times = np.log(sizes * 1e9 / mean)
        return rates


def _alone(workload: Workload, drawn: DrawnTimes, parameters: Times) -> float:
    making, step, cpus, _, _, storage = np.exp(parameters)
    limits = replace(workload.limits, cpus=float(cpus), storage_parallel=float(storage))
    ends, _stalls = serial(replace(workload, scale=float(making), limits=limits), drawn, float(step))
    return float(np.log(workload.batch_size * 1e9 * ends.shape[1] / ends[:, -1].mean()))
