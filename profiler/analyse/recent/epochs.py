"""How far an epoch is, as the numbers of its steps tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...record.reader import Records


class Steps(Protocol):
    """The STEP records of one process."""

    @property
    def seen(self) -> int: ...

    def at(self, number: int) -> Records: ...


@dataclass(frozen=True)
class Epoch:
    number: int
    """From 0."""
    begin: int
    """Its first step."""
    previous_steps: int | None
    """Steps of the epoch before; `None` in the first."""


class Epochs:
    """Finds where epochs begin in the files of steps, once each."""

    def __init__(self) -> None:
        self._begins: dict[tuple[str, int], int | None] = {}

    def of(self, name: str, steps: Steps) -> Epoch | None:
        """The epoch that the last step belongs to; `name`: of the file."""
        last = steps.at(steps.seen - 1) if steps.seen else None
        if last is None or len(last) == 0:
            return None
        number = int(last["epoch"][0])
        begin = self._begin(name, steps, number)
        if begin is None:
            return None
        before = self._begin(name, steps, number - 1)
        return Epoch(number, begin, None if before is None else begin - before)

    def _begin(self, name: str, steps: Steps, epoch: int) -> int | None:
        """Number of an epoch's first step; `None` where none was recorded."""
        key = name, epoch
        if key not in self._begins:
            self._begins[key] = self._found(steps, epoch)
        return self._begins[key]

    def _found(self, steps: Steps, epoch: int) -> int | None:
        low, high = 0, steps.seen
        while low < high:
            middle = (low + high) // 2
            record = steps.at(middle)
            if len(record) == 0:
                return None
            if int(record["epoch"][0]) < epoch:
                low = middle + 1
            else:
                high = middle
        first = steps.at(low) if low < steps.seen else None
        if first is None or len(first) == 0 or int(first["epoch"][0]) != epoch:
            return None
        return int(first["step"][0])
