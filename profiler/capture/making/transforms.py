"""What single transforms of a dataset cost, for the samples of a few batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any

NAMED = ("transform", "transforms", "target_transform")
"""Attributes under which datasets hold what they apply to a sample."""
DEEPEST = 4
WIDEST = 16
"""Datasets within datasets that are searched."""
MOST_PLACES = 64
FIRST = range(1, 4)
EVERY = 50
"""Batches of a worker whose transforms are timed: the second to the fourth, then one in so many. The first is left
out, because it imports and fills caches."""


def is_due(number: int) -> bool:
    """Whether the transforms of a worker's batch with this number, from 0, are timed."""
    return number in FIRST or (number > 0 and number % EVERY == 0)


class Transform:
    """One transform while it is timed."""

    __slots__ = ("calls", "inner", "name", "ns", "position", "stand_in")

    def __init__(self, inner: Any, position: int, timing: Timing) -> None:
        self.inner = inner
        self.position = position
        self.name = _name_of(inner)
        self.calls = 0
        self.ns = 0
        self.stand_in = _stand_in(self, timing)


class Timing:
    """Puts stand-ins in the places of a dataset's transforms, and takes them out again."""

    def __init__(self, dataset: Any) -> None:
        self._put_back: list[Callable[[], None]] = []
        self._known: dict[int, Transform] = {}
        self.depth = 0
        """Timed transforms under way: one may call another."""
        self.total_ns = 0
        """Time in any of them."""
        try:
            for place, (holder, key, inner) in enumerate(_places(dataset)):
                if place == MOST_PLACES:
                    break
                self._replace(holder, key, inner)
        except BaseException:
            self.end()
            raise

    @property
    def transforms(self) -> list[Transform]:
        return list(self._known.values())

    def end(self) -> None:
        """Everything as it was; safe to call twice."""
        while self._put_back:
            self._put_back.pop()()

    def _replace(self, holder: Any, key: Any, inner: Any) -> None:
        timed = self._known.get(id(inner))
        if timed is None:
            timed = self._known[id(inner)] = Transform(inner, len(self._known), self)
        stand_in = timed.stand_in
        if isinstance(holder, list):
            holder[key] = stand_in

            def put_back() -> None:
                # Unless the dataset has changed its list meanwhile.
                if key < len(holder) and holder[key] is stand_in:
                    holder[key] = inner

        else:
            held = vars(holder)
            held[key] = stand_in

            def put_back() -> None:
                if held.get(key) is stand_in:
                    held[key] = inner

        self._put_back.append(put_back)


def _places(dataset: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(list or object, index or attribute, transform), in the order in which they are found."""
    todo, seen = [(dataset, 0)], 0
    while todo and seen < WIDEST:
        holder, depth = todo.pop(0)
        seen += 1
        held = getattr(holder, "__dict__", None)
        if held is None:
            continue
        for name, value in list(held.items()):
            if name in NAMED or _is_torchvision(value):
                yield from _within(holder, name, value, 0)
        if depth < DEEPEST:
            inside = held.get("datasets")
            below = [held.get("dataset"), *(inside[:WIDEST] if isinstance(inside, list | tuple) else ())]
            todo += [(inner, depth + 1) for inner in below if inner is not None]


def _within(holder: Any, key: Any, value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """The transforms in one place: a Compose of torchvision is taken apart, its StandardTransform too."""
    kind = type(value)
    members = getattr(value, "__dict__", {}).get("transforms")
    if kind.__name__ == "Compose" and _is_torchvision(value) and type(members) is list and depth < DEEPEST:
        for number, member in enumerate(members):
            yield from _within(members, number, member, depth + 1)
    elif kind.__name__ == "StandardTransform" and kind.__module__.startswith("torchvision."):
        for name in ("transform", "target_transform"):
            yield from _within(value, name, vars(value).get(name), depth + 1)
    elif callable(value) and not isinstance(value, type):
        yield holder, key, value


def _is_torchvision(value: Any) -> bool:
    return callable(value) and type(value).__module__.startswith("torchvision.transforms.")


def _name_of(transform: Any) -> str:
    name = getattr(transform, "__qualname__", None)
    if isinstance(name, str):
        return name.replace(".<locals>", "")
    inner = getattr(transform, "func", None)
    return type(transform).__qualname__ if inner is None else f"partial {_name_of(inner)}"


def _stand_in(timed: Transform, timing: Timing) -> Any:
    """Something that does as the transform does and says it was it."""
    inner = timed.inner

    class StandIn:
        __slots__ = ()

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            timing.depth += 1
            begin = monotonic_ns()
            try:
                return inner(*args, **kwargs)
            except BaseException as error:
                # As `hidden.forget_frame`, without one more call for each sample.
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            finally:
                took = monotonic_ns() - begin
                timed.calls += 1
                timed.ns += took
                timing.depth -= 1
                if not timing.depth:
                    timing.total_ns += took

        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            return type(inner)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(inner, name, value)

        def __delattr__(self, name: str) -> None:
            delattr(inner, name)

        def __repr__(self) -> str:
            return repr(inner)

        def __eq__(self, other: object) -> bool:
            return bool(inner == (timed.inner if other is timed.stand_in else other))

        def __hash__(self) -> int:
            return hash(inner)

        def __reduce_ex__(self, protocol: Any) -> Any:
            # Copies and pickles are the transform's own: the greatest of one is itself.
            return max, ([inner],)

    return StandIn()
