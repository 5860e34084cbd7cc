"""The loop detector in a training: fed by the hooks, with its actions carried out by the recorder.

Which image files a data set reads, as far as its attributes tell: no code of it runs for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from threading import current_thread, get_ident
from threading import enumerate as enumerate_threads
from typing import Any, NamedTuple

import torch

from ...record.schema import EventKind
from ..loop_detector.detector import LoopDetector
from ..session import Session
from .identity import ByIdentity
from .loader_facts import DataSets, LoaderFacts
from .parts import Shapes
from .switch import Switch

MOST = 96
"""Files that are told of."""
_SUFFIXES = (".jpg", ".jpeg")
_DEEPEST = 4
"""Data sets within data sets."""
_INNER = ("dataset", "data", "_dataset", "base")
_FOLDERS = ("img_dir", "image_dir", "images_dir", "img_folder", "image_folder")
_ROOTS = ("root", "root_dir", *_FOLDERS, "folder", "path", "dir")


def image_files(data: Any) -> tuple[str, ...]:
    """Some of the JPEG files of a data set, evenly from all of them; none where no attribute lists any."""
    for each in _within(data):
        attributes = vars(each) if hasattr(each, "__dict__") else {}
        roots = [Path(root) for name in _ROOTS if isinstance(root := attributes.get(name), str | PurePath)]
        for listed in attributes.values():
            if found := _files(listed, roots):
                return found
    return ()


def _within(data: Any) -> Iterator[Any]:
    for _ in range(_DEEPEST):
        if data is None:
            return
        yield data
        attributes = vars(data) if hasattr(data, "__dict__") else {}
        data = next((attributes[name] for name in _INNER if hasattr(attributes.get(name), "__dict__")), None)


def _files(listed: Any, roots: Sequence[Path]) -> tuple[str, ...]:
    if type(listed) not in (list, tuple) and type(listed).__module__ != "numpy":
        return ()
    if type(listed).__name__ not in ("list", "tuple", "ndarray") or not len(listed):
        return ()
    if _name(listed[0]) is None:
        return ()
    chosen = [_name(listed[place]) for place in range(0, len(listed), max(1, len(listed) // MOST))][:MOST]
    names = [name for name in chosen if name is not None]
    for root in (Path(), *roots):
        if (root / names[0]).is_file():
            return tuple(str((root / name).absolute()) for name in names)
    return ()


def _name(entry: Any) -> str | None:
    """Of a file, by itself or first in a row."""
    if isinstance(entry, tuple | list) and len(entry):
        entry = entry[0]
    if isinstance(entry, str | PurePath) and str(entry).lower().endswith(_SUFFIXES):
        return str(entry)
    return None


LEAST_SAVE_NS = 100_000
"""Shorter checkpoints are not recorded one by one."""


_RETURNS = "iter_ended", "fetch_ended", "fetch_stopped", "step_marked", "wait_ended"
"""After these the program goes on with what it has."""


class Phase(NamedTuple):
    """What was known when a phase of the program's own began."""

    begin_ns: int
    learnings: int
    between: bool


class LearningGraphs:
    """CUDA graphs in which a backward pass or an optimizer step was captured."""

    def __init__(self) -> None:
        self.captured: Any = None
        """The graph that was captured last, or is being captured."""
        self._known: ByIdentity[bool] = ByIdentity()

    def captures_learning(self) -> None:
        """A backward pass or an optimizer step becomes part of the graph that is being captured."""
        if self.captured is not None:
            self._known.put(self.captured, True)

    def __contains__(self, graph: Any) -> bool:
        return self._known.get(graph) is not None


class Loop(LoopDetector):
    """The detector of one training thread. The hooks tell it what happens; it tells the recorder."""

    def __init__(self, session: Session) -> None:
        super().__init__(get_ident(), session)
        self.now = session.device.now
        self.busy = False
        """The training thread tells of something here: another thread must change nothing."""
        self.fetching = False
        """A fetch is under way: whatever is called within it is part of it."""
        self.shapes = Shapes(
            self.steps, Switch("the shapes of batches", "the cost of new shapes is not recorded", session.notice)
        )
        self.data_sets = DataSets()
        self.steady: Any = None
        """What hooks ask first, where there is the extension in C (`steady.py`)."""
        self.graphs = LearningGraphs()
        self.capturing: Callable[[], bool] | None = None
        """Asks torch whether a CUDA graph is being captured; `None` where there is no CUDA device."""
        self.follow: Callable[[int | None], object] | None = None
        """Told the GPU that a step is learnt from, `None` for none, until it is known on which device it computes."""
        self.on_learning: Callable[[], object] | None = None
        """Called at the first backward pass or optimizer step of each step, unless a CUDA graph captures it."""

    def tell(self, happened: Callable[..., None], *facts: Any) -> None:
        """Something happened in the thread that trains: the detector's method for it, and what that is to be told.

        What a signal's handler does meanwhile is not told.
        """
        if self.busy:
            return
        self.busy = True
        try:
            self._do(happened, *facts)
            if happened.__name__ in _RETURNS:
                self._last_ns = self.now()
        finally:
            self.busy = False

    def happens(self, happened: Callable[..., None], *facts: Any) -> None:
        """As `tell`, of what happens now: the method is told when, and then the rest."""
        self.tell(happened, self.now(), *facts)

    def hears(self, switch: Switch, happened: Callable[..., None], *facts: Any) -> bool:
        """As `tell`, unless `switch` is off; errors of ours go there. Whether it was heard."""
        if not switch.on:
            return False
        try:
            self.tell(happened, *facts)
        except Exception as error:
            switch.fail(error)
        return switch.on

    def learns(self, updates: bool) -> None:
        """A backward pass begins, or an optimizer step (`updates`), in the thread that trains."""
        again = self.learnt
        if not self.next_learns(updates):
            self.happens(self.learning_began, updates)
        elif not again and self.on_learning is not None:
            self._first_learning()

    def in_step(self) -> bool:
        """Whether the calling thread trains, and is in the midst of a step that is looked at."""
        return self.inside and self.steps.recording and get_ident() == self.thread

    def captures(self) -> bool:
        """Whether a CUDA graph is being captured: a mark set now would become part of it."""
        return self.capturing is not None and self.capturing()

    def fetches_elsewhere(self, switch: Switch) -> None:
        """The calling thread is not the training's, and asks a loader for a batch. Errors of ours go to `switch`."""
        with switch:
            if self.undecided and not self.busy:
                self._do(self.fetched_elsewhere, get_ident(), current_thread().name)

    def learns_elsewhere(self) -> None:
        """The calling thread is not the training's, and begins a backward pass or an optimizer step."""
        if self.undecided and not self.busy:
            names = {thread.ident: thread.name for thread in enumerate_threads()}
            training = names.get(self.thread) or "ended since"
            self._do(self.learnt_elsewhere, self.now(), get_ident(), current_thread().name, training)

    def wait_begins(self) -> bool:
        """The program says that it waits for data from here on; false within another wait."""
        if self.fetching or self.waiting is not None:
            return False
        self.happens(self.wait_began, torch.is_grad_enabled())
        return True

    def phase_begins(self) -> Phase:
        """A phase begins that the program marks."""
        return Phase(self.now(), self.learnings, self.between_steps)

    def boundary_begins(self) -> bool:
        """Something outside the steps begins, a checkpoint; false if it belongs to something larger."""
        if self.fetching or self.in_boundary:
            return False
        self.happens(self.boundary_began)
        return True

    def saved(self, begin_ns: int) -> None:
        """A checkpoint was written since."""
        now = self.now()
        if now - begin_ns >= LEAST_SAVE_NS:
            self.session.event(EventKind.SAVE, t_ns=begin_ns, end_ns=now)

    def drew(self, begin_ns: int, end_ns: int, indices: int) -> None:
        """A sampler worked so long in the training's thread. `indices`: as the value of `EventKind.SAMPLER`."""
        self.session.event(EventKind.SAMPLER, indices, end_ns, begin_ns)

    def give_up(self) -> None:
        """Nothing more is known of the steps: leave none open."""
        try:
            self.happens(self.gave_up)
        finally:
            self.forked()

    def forked(self) -> None:
        """This is a child of the process that trains, or nothing is recorded any longer."""
        self.thread = 0
        self.inside = False

    def _do(self, happened: Callable[..., None], *facts: Any) -> None:
        for call, arguments in self.feed(happened, *facts):
            call(*arguments)

    def _loader_trains(self, facts: LoaderFacts) -> None:
        self.session.loader(facts.workers, facts.prefetch, facts.flags, facts.made, image_files(facts.data()))

    def _first_learning(self) -> None:
        if self.on_learning is not None and not self.captures():
            self.on_learning()
