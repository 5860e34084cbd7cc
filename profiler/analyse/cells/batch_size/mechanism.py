"""A mechanism by which a larger batch takes longer per sample, and what its rules have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...causes.finding import Evidence
from ...run.facts import Facts
from ...shares import MOSTLY
from ...statistics import median_of_known
from . import terms
from .compared import Compared

MORE_ELEMENTS = 0.05
"""Growth of the elements of a sample, as a share, from which samples are padded more."""
LEAST_MEGABYTES = 0.1
"""Size of a batch below which its bytes are no evidence: it is moved in no time."""


@dataclass(frozen=True)
class Mechanism:
    """What made the larger batch slower, or no faster."""

    cause: str
    """One of the contract's."""
    why: str
    """The rest of a sentence that begins with what grew."""
    evidence: tuple[Evidence, ...] = ()


Rule = Callable[[Compared], Mechanism | None]
Last = Callable[[Compared], Mechanism]
"""What is to be said where no rule finds anything."""


def padding(compared: Compared) -> Mechanism | None:
    """Samples are padded to the longest of their batch, and a larger batch has a longer one."""
    elements = compared.values(terms.elements_per_sample)
    if elements is None or not elements[0] or compared.grew is None:
        return None
    more = elements[1] / elements[0] - 1
    if compared.grew == "input":
        # Of the wait for data only what puts together and moves a batch is in proportion to its elements.
        explains = compared.is_due_to(terms.HANDED, terms.COLLATING)
    else:
        explains = more * compared.times(compared.grew)[0] >= MOSTLY * compared.growth
    if more < MORE_ELEMENTS or not explains:
        return None
    return Mechanism(
        "padding",
        f"because samples have {100 * more:.0f} % more elements: each is padded to the longest of its batch, and a "
        "larger batch has a longer one. Batch samples of similar length together",
        at_both(compared, "Elements per sample", terms.elements_per_sample),
    )


def only_after(
    compared: Compared, what: str, value: Callable[[Facts], float | None], usual: str
) -> tuple[Evidence, ...]:
    """A figure at the larger size, with what it would be if it were not the reason."""
    known = median_of_known(value(run) for run in compared.after)
    return () if known is None else (Evidence(f"{what} at batch {compared.larger}", known, "", usual),)


def at_both(
    compared: Compared, what: str, value: Callable[[Facts], float | None], unit: str = ""
) -> tuple[Evidence, ...]:
    """A figure at the smaller and at the larger size; nothing where it is not known."""
    values = compared.values(value)
    if values is None:
        return ()
    return tuple(
        Evidence(f"{what} at batch {size}", known, unit)
        for size, known in zip((compared.smaller, compared.larger), values, strict=True)
    )


def batch_megabytes(compared: Compared) -> tuple[Evidence, ...]:
    """The bytes of a batch at both sizes as evidence; none of small batches, whose bytes explain nothing."""
    sizes = compared.values(terms.batch_megabytes)
    if sizes is None or sizes[1] < LEAST_MEGABYTES:
        return ()
    return at_both(compared, "Bytes of a batch", terms.batch_megabytes, "MB")
