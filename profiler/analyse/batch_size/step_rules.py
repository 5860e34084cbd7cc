"""What grew is no wait for data: the step's own computation, its copies, or the host. Why?"""

from __future__ import annotations

from . import terms
from .compared import EXPLAINS, Compared
from .mechanism import Last, Mechanism, Rule, at_both, batch_megabytes, padding


def retries(compared: Compared) -> Mechanism | None:
    """The allocator gives memory back and asks for it anew."""
    if not compared.is_due_to(terms.RETRYING):
        return None
    return Mechanism(
        "memory",
        "around retries of the device's memory allocator: the batch hardly fits. A smaller batch with gradients "
        "accumulated over several of them does",
        at_both(
            compared,
            "allocator retries in a run",
            lambda run: 0.0 if run.memory_pressure is None else float(run.memory_pressure.count),
        ),
    )


def new_shapes(compared: Compared) -> Mechanism | None:
    if not compared.is_due_to(terms.NEW_SHAPES):
        return None
    return Mechanism(
        "compute_growth",
        "in steps with input shapes that none before them had, for which libraries choose or compile anew. Fixed "
        "shapes, or a few of them, avoid it",
    )


def clock(compared: Compared) -> Mechanism | None:
    """A larger batch draws more power, and the device slows down."""
    clocks = compared.values(lambda run: run.sampled.sm_clock_mhz)
    if clocks is None or not clocks[1]:
        return None
    had, has = clocks
    if (had / has - 1) * compared.times("compute")[0] < EXPLAINS * compared.growth:
        return None
    states = (run.device_state.throttled for run in compared.after if run.device_state is not None)
    by = next((f" ({state.by})" for state in states if state is not None), "")
    return Mechanism(
        "clock",
        f"with the device's clock, which fell from {had:.0f} to {has:.0f} MHz{by}: a larger batch draws more power. "
        "A higher power limit or better cooling gives that back; so does the smaller batch",
        at_both(compared, "multiprocessor clock", lambda run: run.sampled.sm_clock_mhz, "MHz"),
    )


def kernels(_: Compared) -> Mechanism:
    return Mechanism(
        "compute_growth",
        "and neither memory, clocks, new shapes nor the size of the samples explain it: the step's own kernels take "
        "longer a sample. Record a run of each size with --activity-windows to see which",
    )


def copying(compared: Compared) -> Mechanism:
    how = ""
    if all(run.pinned is False for run in compared.after):
        how = " from pageable memory. Pin it"
    elif not any(run.copied_ahead for run in compared.after):
        how = " that nothing is computed beside. Copy the next batch ahead, on a stream of its own"
    return Mechanism("handoff_growth", f"in copies to the device{how}", batch_megabytes(compared))


def _no_mechanism(why: str) -> Last:
    """What grew is said, and no more."""
    return lambda _: Mechanism("none", why)


own_work = _no_mechanism(
    "in the training loop's own work: something in it takes more than twice as long for twice the samples"
)
waits = _no_mechanism("in calls that wait for the device and then make something of what they read")
outside = _no_mechanism("outside the steps: validation, checkpoints or hooks of epochs")

COMPUTE_RULES: tuple[Rule, ...] = (retries, new_shapes, padding, clock)
COPY_RULES: tuple[Rule, ...] = (padding,)
HOST_RULES: tuple[Rule, ...] = (retries,)
"""From the specific to the general."""
