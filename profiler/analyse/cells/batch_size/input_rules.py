"""The exposed wait for data grew: why?"""

from __future__ import annotations

from collections.abc import Sequence

from ...causes.finding import Evidence
from ...run.facts import Facts
from ...run.loader_stats import BUSY
from ...shares import MOSTLY
from ...statistics import median_of_known
from . import terms
from .compared import Compared
from .mechanism import Mechanism, Rule, at_both, batch_megabytes, padding

MORE_PAGES = 1.5
"""Pages a sample touched for the first time at the larger size over those at the smaller, from which they are told."""
MORE_FAULTS = 2.0
"""Page faults a sample that read from the disk at the larger size over those at the smaller, from which memory is what
the batch lacks."""
LEAST_FAULTS = 0.05
"""Page faults a sample that read from the disk, from which they can be the reason at all."""


def too_few_batches(compared: Compared) -> Mechanism | None:
    """An epoch of fewer batches than workers leaves some of them without any."""
    batches, workers = compared.values(terms.batches_per_epoch), compared.values(terms.workers)
    if batches is None or workers is None:
        return None
    had, has, most = round(batches[0]), round(batches[1]), round(max(workers))
    starts = compared.is_due_to(terms.STARTING, terms.FILLING)
    if not has < min(had, most) or not (starts or compared.is_due_to(terms.STARTING, terms.FILLING, terms.MAKING)):
        return None
    return Mechanism(
        "fewer_batches_than_workers",
        f"because an epoch has {has} batch{'es' * (has != 1)} for {most} workers, and one worker prepares each batch. "
        "Longer epochs or a smaller batch give all of them work",
        at_both(compared, "Batches per epoch", terms.batches_per_epoch),
    )


def epochs_begin(compared: Compared) -> Mechanism | None:
    """The first batch of an epoch takes longer to come."""
    if not compared.is_due_to(terms.STARTING, terms.FILLING):
        return None
    waits = (
        (compared.smaller, _first_wait_ms(compared, compared.smaller, compared.before)),
        (compared.larger, _first_wait_ms(compared, compared.larger, compared.after)),
    )
    evidence = tuple(Evidence(f"Wait for an epoch's first batch at batch {size}", ms, "ms") for size, ms in waits)
    if compared.is_due_to(terms.STARTING):
        return Mechanism(
            "pipeline_fill",
            "at the beginning of epochs, before a worker has started on a batch. Keep the workers from epoch to "
            "epoch (`persistent_workers=True`), or make epochs longer",
            evidence,
        )
    return Mechanism(
        "pipeline_fill",
        "at the first batch of each epoch, which one worker has to prepare before anything can compute. Longer "
        "epochs spread that over more batches; a smaller batch is ready sooner",
        evidence,
    )


def _first_wait_ms(compared: Compared, size: int, runs: Sequence[Facts]) -> float | None:
    """Wait for the first batch of an epoch beyond that for others, ms; `None` where epochs are not known."""
    filling = sum(compared.fit.at(size, name).value for name in (terms.STARTING, terms.FILLING))
    samples = median_of_known(run.samples / run.waits.epochs if run.waits.epochs else None for run in runs)
    return None if samples is None else filling * samples / 1e3


def handed(compared: Compared) -> Mechanism | None:
    """Batches are made in time, and moving them costs more a sample."""
    if not compared.is_due_to(terms.HANDED):
        return None
    return Mechanism(
        "handoff_growth",
        "during the hand-over of finished batches to the training. Hand over less (8-bit images, "
        "fewer tensors), or use a smaller batch",
        batch_megabytes(compared) + _new_pages(compared),
    )


def collated(compared: Compared) -> Mechanism | None:
    """Putting samples together costs more a sample: memory that was used again is new each time."""
    if not compared.is_due_to(terms.COLLATING):
        return None
    return Mechanism(
        "handoff_growth",
        "where samples are collated: the memory of so large a batch is freed after it, so every page "
        "is new for the next. A smaller batch or 8-bit samples avoid that",
        batch_megabytes(compared) + _new_pages(compared),
    )


def _new_pages(compared: Compared) -> tuple[Evidence, ...]:
    pages = compared.values(terms.new_pages_per_sample)
    if pages is None or pages[1] < MORE_PAGES * pages[0]:
        return ()
    return at_both(compared, "Pages touched for the first time per sample", terms.new_pages_per_sample)


def read_back(compared: Compared) -> Mechanism | None:
    """Memory that is needed again was given up meanwhile."""
    faults = compared.values(terms.disk_faults_per_sample)
    if faults is None or faults[1] < max(LEAST_FAULTS, MORE_FAULTS * faults[0]):
        return None
    if not compared.is_due_to(terms.READING, terms.MAKING):
        return None
    return Mechanism(
        "memory",
        "because memory that was needed again had to be read from disk: batches of this size leave too little for "
        "the rest. Prefetch fewer batches, or use a smaller batch",
        at_both(compared, "Page faults that read from disk, per sample,", terms.disk_faults_per_sample),
    )


def loader_floor(compared: Compared) -> Mechanism:
    """Nothing else explains that the wait grew: the loader sets the pace."""
    making = compared.values(_making_ms)
    evidence = at_both(compared, "Preparing a sample", _making_ms, "ms") + at_both(
        compared, "Workers busy", _busy_pct, "%"
    )
    in_training = any(run.made_in_training for run in compared.after)
    busy = compared.values(_busy_pct)
    if making is not None and compared.slower and _makes_up(compared, making[1] - making[0]):
        why = f"because preparing a sample takes {making[1]:.2f} ms instead of {making[0]:.2f}"
    elif busy is not None and busy[1] < 100 * BUSY and not in_training:
        return Mechanism(
            "loader_floor",
            "although the workers idle part of the time: batches come in larger pieces, less evenly. More "
            "prefetched batches (`prefetch_factor`) or more workers bridge that",
            evidence,
        )
    else:
        why = "because the loader sets the pace, and a larger batch makes it no faster"
    change = "workers, which prepare batches beside the training" if in_training else "more workers"
    return Mechanism("loader_floor", f"{why}. Give it {change}, or cheaper samples", evidence)


def _makes_up(compared: Compared, longer_ms: float) -> bool:
    """Whether preparing a sample for so much longer, by all workers side by side, is most of the growth."""
    side_by_side = max(1.0, median_of_known(terms.workers(run) for run in compared.after) or 1.0)
    return 1e3 * longer_ms / side_by_side >= MOSTLY * compared.growth


def _making_ms(run: Facts) -> float | None:
    return run.loader.make_ms_per_sample


def _busy_pct(run: Facts) -> float | None:
    return None if run.made_in_training else run.loader.worker_busy_pct


RULES: tuple[Rule, ...] = (too_few_batches, epochs_begin, padding, handed, collated, read_back)
"""Rules for a wait for data that grew, from the specific to the general."""
