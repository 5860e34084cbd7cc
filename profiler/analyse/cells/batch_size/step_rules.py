"""What grew is no wait for data: the step's own computation, its copies, or the host. Why?"""

from __future__ import annotations

from collections.abc import Sequence

from ...shares import MOSTLY
from . import terms
from .compared import Compared
from .mechanism import Mechanism, Rule, at_both, batch_megabytes, only_after, padding


def retries(compared: Compared) -> Mechanism | None:
    """The allocator gives memory back and asks for it anew."""
    if not compared.is_due_to(terms.RETRYING):
        return None
    return Mechanism(
        "memory",
        "around retries of the device's memory allocator: the batch hardly fits. Use a smaller batch with "
        "gradient accumulation",
        only_after(
            compared,
            "Allocator retries per run",
            lambda run: None if run.memory_pressure is None else float(run.memory_pressure.count),
            "0",
        ),
    )


def new_shapes(compared: Compared) -> Mechanism | None:
    """Steps with input shapes not seen before take longer."""
    if not compared.is_due_to(terms.NEW_SHAPES):
        return None
    return Mechanism(
        "compute_growth",
        "in steps with new input shapes, for which libraries tune or compile anew. Fixed "
        "shapes, or only a few, avoid that",
    )


def clock(compared: Compared) -> Mechanism | None:
    """The device computes at a lower clock."""
    clocks = compared.values(terms.clock_mhz)
    if clocks is None or not clocks[1]:
        return None
    had, has = clocks
    if (had / has - 1) * compared.times("compute")[0] < MOSTLY * compared.growth:
        return None
    states = (run.device_state.throttled for run in compared.after if run.device_state is not None)
    by = next((state.by for state in states if state is not None), None)
    why = f"because the device's clock fell from {had:.0f} to {has:.0f} MHz"
    if by is not None:
        why += f" ({by}). A higher power limit or better cooling gives that back; so does the smaller batch"
    return Mechanism("clock", why, at_both(compared, "Multiprocessor clock while computing", terms.clock_mhz, "MHz"))


def kernels(compared: Compared) -> Mechanism:
    """Nothing known explains that the computation takes longer: it is said what was looked at."""
    device = compared.after[0].device_kind
    retried = "retries of its memory"
    known = {
        "its clock": compared.values(terms.clock_mhz) is not None,
        retried: device != "cpu",
        "the size of the samples": compared.values(terms.elements_per_sample) is not None,
    }
    told = [what for what, is_known in known.items() if is_known]
    does = "do" if len(told) > 1 or told == [retried] else "does"
    but = f", and {_listed(told)} {does} not explain it" if told else ""
    return Mechanism("compute_growth", f"in the step's own computation, which takes longer per sample{but}")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def copying(compared: Compared) -> Mechanism:
    """Copies to the device take longer a sample."""
    how = ""
    if all(run.pinned is False for run in compared.after):
        how = " from pageable memory. Set `pin_memory=True`"
    elif not any(run.copied_ahead for run in compared.after):
        how = ", while nothing computes. Copy the next batch ahead, on a stream of its own"
    return Mechanism("handoff_growth", f"in copies to the device{how}", batch_megabytes(compared))


def own_work(compared: Compared) -> Mechanism:
    """The training loop's own work takes longer a sample, for no reason that is known."""
    if not compared.slower:
        return Mechanism("none", "in the training loop's own work, which the device no longer covers")
    return Mechanism(
        "none", "in the training loop's own work: something in it takes more than twice as long for twice the samples"
    )


def waits(_: Compared) -> Mechanism:
    """Synchronising calls take longer a sample, for no reason that is known."""
    return Mechanism("none", "in calls that wait for the device and then use what they read")


def outside(_: Compared) -> Mechanism:
    """There is more time outside the steps a sample."""
    return Mechanism("none", "outside the steps: validation, checkpoints or hooks of epochs")


COMPUTE_RULES: tuple[Rule, ...] = (retries, new_shapes, padding, clock)
COPY_RULES: tuple[Rule, ...] = (padding,)
HOST_RULES: tuple[Rule, ...] = (retries, new_shapes)
"""Rules for a part that grew, from the specific to the general."""
