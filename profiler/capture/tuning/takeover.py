"""Takes over the loader of a training that `whyidle tune` started: its batches come as the tuner orders then.

The contract between the two, on top of `record.tuning`:

*Options.* `WHYIDLE_OPTIONS` holds, beside what `whyidle run` puts there, `"tune": {"after_steps": 40, "after_s": 2.0,
"before_s": 60.0, "tuner": PID, "began": time.time(), "overwrite": false, "temporary": "/tmp/pymp-…"}`. The training is
recorded as always until it has made `after_steps` steps and trained `after_s` seconds, or until `before_s` seconds have
passed since its first step and it has made 8. With fewer by then, or without a place to take it over, it is refused,
and so is a program of whose loaders none has trained so long after its first batch. `tuner`: the process whose end ends
the training. `began`: when the tuner began; regular files older than that are guarded, unless `overwrite`. `temporary`:
for sockets; the tuner removes it. The tuner makes the pipes (`Channel.of_tuner`) before it starts the program.

*Answers and orders* are those of `record.tuning.Word`. The first answer comes once; afterwards the training stands
still between two steps and waits for orders. Of its `settings` the batch size is `None` where torch does not make its
batches; `fixed` names fields of `LoaderSettings` that other values cannot be tried of, each with why (`num_workers`:
there can be no workers). Where the training itself ends or raises in the midst of an order, that order is answered by
`failed` or `oom` with `"ended": true`, and the process ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from ...record.tuning import Channel, ChannelClosed, Word
from ..hooks.loader import LoaderHook
from ..hooks.loop import Loop
from ..hooks.switch import Switch
from ..hooks.wrap import Wraps
from ..loop_detector.loaders import Iteration, Part, Use
from ..session import Session
from .loader_source import CannotRebuild, Siblings, end_host
from .processes import goes_first, lives
from .switching import S, Switching, is_out_of_memory, sentence

TAKEN = "tuning.taken"
"""File in the run folder by which one process of a program is the one that answers."""
LEAST_STEPS = 8
ALONE = 8
"""Steps in a row that one loader feeds before it is taken over."""
MOST_LOOKS = 500
"""Fetches after the training is due, before it is refused for want of a place to take it over."""
MOST_CROWDED = 6 * ALONE
"""The same, where several loaders feed its steps all along."""
MOST_LOADERS = 8
"""Those used last are kept."""
LOOK_EVERY_NS = S
SEVERAL = "the training takes batches from several loaders at a time (more than one DataLoader feeds its steps)"
MADE_ANEW = (
    "the training made a new DataLoader and went on with that, but whyidle can change only the one it took over. "
    "Make the DataLoader once, before the loop over epochs"
)
END_SECONDS = 5.0
"""For the recording to end, before the process ends all the same."""


class Takeover:
    """Stands between the training and its iterators: it is told before each fetch. Used from the training thread."""

    def __init__(self, session: Session, loop: Loop, loading: LoaderHook, options: dict[str, Any]) -> None:
        self._session = session
        self._steps = session.steps
        self._loop = loop
        self._loading = loading
        self._now = session.device.now
        self._after_steps = int(options.get("after_steps", 40))
        self._after_ns = int(float(options.get("after_s", 2.0)) * S)
        self._before_ns = int(float(options.get("before_s", 60.0)) * S)
        self._tuner = int(options.get("tuner", 0))
        self._pid = os.getpid()
        self._line: Channel | None = None
        self._switching: Switching | None = None
        self._iterator: Any = None
        self._trains = False
        """A torch DataLoader that trains was seen."""
        self._done = False
        """Nothing is to be answered any longer."""
        self._first_ns = self._look_ns = self._fed_ns = 0
        self._alone = self._mixed = self._looks = self._updates = self._elsewhere = 0
        self._border_ns = 0
        """Of the border that is being passed; 0 outside."""
        self._made: deque[tuple[weakref.ref[Any], Any]] = deque(maxlen=MOST_LOADERS)
        """The latest iterators, and their loaders: a program may keep no more of a loader than its iterator."""

        def was_made(made: tuple[Any, Any], _returned: Any) -> None:
            self._made.append((weakref.ref(made[0]), made[1]))

        self._wraps = Wraps(Switch("the loader's iterators", "tuning may not find the loader", session.notice))
        self._wraps.around(dataloader._BaseDataLoaderIter, "__init__", lambda *made: made[:2], was_made, None, None)
        self._hook = register_optimizer_step_post_hook(self._updated)

    def before(self, iterator: Any, of: Iteration | None, now: int) -> int:
        """`iterator` is asked for a batch, as part of `of` where that is known; when, after a border maybe."""
        if self._done or of is None or self._pid != os.getpid():
            return now
        try:
            if self._switching is None:
                if not self._due(of, now):
                    return now
                self._take_over(iterator)
            elif iterator is not self._iterator:
                self._elsewhere += of.use is Use.TRAINS and self._loop.open is of and self._loop.learnt
                if self._elsewhere > ALONE:
                    raise CannotRebuild(MADE_ANEW)
                return now
            self._elsewhere = 0
            of.queue = None  # that of the loader itself, which makes no batches any longer
            self._border(of, now)
        except Exception as error:
            self._fails(error)
        return self._now()

    def finish(self) -> None:
        """The recording ends, and with it the training."""
        self._hook.remove()
        self._wraps.put_back()
        if self._done or self._pid != os.getpid():
            return
        steps = self._steps.count
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        raised = f": {sentence(error)}" if error is not None else ""
        if self._switching is not None:
            self._done = True
            oom = error is not None and is_out_of_memory(error)
            self._switching.training_ended(f"the training ended after {steps} steps{raised}", oom)
        elif steps or self._updates:
            why = f"the training ended after {steps} steps, before its loader could be taken over{raised}"
            if self._crowded:
                why = SEVERAL
            elif not raised:
                why += ". Let it train longer, for example with more epochs"
            self._refuse(why, wait=False)

    def _due(self, of: Iteration, now: int) -> bool:
        if now >= self._look_ns:
            self._look_ns = now + LOOK_EVERY_NS
            if not self._tuner_lives():
                self._stop()
        if of.use is not Use.TRAINS or of.epoch is None or of.done:
            self._fed_ns = self._fed_ns or now
            if not self._trains and not self._updates and now - self._fed_ns >= self._before_ns:
                self._refuse(f"no DataLoader fed a training within {self._before_ns / S:.0f} s of the first batch")
            return False
        loop = self._loop
        if not self._trains:
            self._trains, self._first_ns = True, self._first_ns or now
            if why := self._why_never():
                self._refuse(why)
                return False
        if loop.shared or loop.open not in (None, of):
            self._alone, self._mixed = 0, self._mixed + 1
        else:
            self._alone += 1
            if self._alone >= ALONE:
                self._mixed = 0
        took, steps = now - self._first_ns, self._steps.count
        late = took >= self._before_ns
        if late and steps < LEAST_STEPS:
            self._refuse(f"{steps} steps in {took / S:.0f} s are too few to learn from. Give it a larger --budget")
            return False
        if not ((steps >= self._after_steps and took >= self._after_ns) or late):
            return False
        self._looks += 1
        between = loop.learnt and loop.open is of and not loop.in_boundary
        if between and self._alone >= ALONE and not loop.captures():
            return True
        if self._looks > (2 * ALONE if late else MOST_CROWDED if self._crowded else MOST_LOOKS):
            self._refuse(
                SEVERAL if self._crowded else "whyidle found no place between two steps to take over its loader"
            )
        return False

    @property
    def _crowded(self) -> bool:
        """Whether several loaders fed the latest steps."""
        return self._mixed >= ALONE

    def _why_never(self) -> str | None:
        from ..active import rank_and_size  # which imports the hooks

        size = rank_and_size()[1] or 1
        return f"the training has {size} ranks; `tune` takes one" if size > 1 else None

    def _take_over(self, iterator: Any) -> None:
        if (line := self._claimed()) is None:
            self._done = True
            return
        loader = next((loader for made, loader in self._made if made() is iterator), None)
        self._wraps.put_back()
        self._made.clear()
        try:
            if why := self._why_never():
                raise CannotRebuild(why)
            if loader is None:
                raise CannotRebuild("whyidle did not see the DataLoader that made its iterator")
            siblings = Siblings(loader, iterator)
        except CannotRebuild as error:
            self._refuse(str(error))
            return
        self._tell = self._loading.fed_from_elsewhere(iterator)
        self._iterator = iterator
        goes_first()  # the workers of several loaders live side by side
        device = self._session.device
        self._switching = Switching(siblings.make, line, device, self._stop, self._tuner_lives, self._stands)
        end_host(loader, iterator, self._next_data)
        line.send(
            Word.READY,
            settings=siblings.settings(),
            batches_per_epoch=siblings.batches_per_epoch(),
            samples=siblings.samples(),
            fixed=siblings.fixed,
            device=device.kind,
            steps=self._steps.count,
        )

    def _border(self, of: Iteration, now: int) -> None:
        if self._switching is None or self._done:
            return
        loop = self._loop
        part, loop.part = loop.part, Part.NOTHING
        loop.fetching = True
        self._border_ns = now
        try:
            self._switching.border(interrupted=loop.open is not of)
        finally:
            self._border_ns = 0
            loop.fetching = False
            loop.part = part

    def _stands(self) -> None:
        """The training does not go on at once: its step is over."""
        begin, self._border_ns = self._border_ns, 0
        if begin and self._loop.learnt and self._loop.open is not None:
            self._steps.end_step(end_ns=begin)

    def _next_data(self) -> Any:
        assert self._switching is not None
        batch, samples = self._switching.next()
        self._tell(samples)
        return batch

    def _updated(self, *_: Any) -> None:
        """An optimizer has made a step."""
        if self._trains or self._done or self._pid != os.getpid():
            return
        try:
            self._updates += 1
            now = self._now()
            self._first_ns = self._first_ns or now
            if self._updates < max(self._after_steps, LEAST_STEPS) or now - self._first_ns < self._after_ns:
                return
            from .. import active  # which imports the hooks

            if (running := active.current()) is None or running.session is not self._session:
                self._done = True  # thrown away, for a recording that began anew on the GPU
                return
            self._refuse(self._why_never() or "the training's batches come from no torch DataLoader")
        except Exception as error:
            self._fails(error)

    def _refuse(self, why: str, wait: bool = True) -> None:
        self._done = True
        if (line := self._claimed()) is None:
            return
        line.send(Word.REFUSED, why=why, steps=self._steps.count)
        if not wait:
            return
        if self._loop.learnt and self._loop.open is not None:
            self._steps.end_step()
        while self._tuner_lives():
            try:
                order = line.receive(0.5)
            except ChannelClosed:
                break
            if order is not None and order["say"] == Word.STOP:
                break
        self._stop()

    def _claimed(self) -> Channel | None:
        """Give the line to the tuner if this process answers for the program: the first that gets here."""
        if self._line is None:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._session.folder / TAKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                self._line = Channel.of_training(Path(self._session.folder))
        return self._line

    def _tuner_lives(self) -> bool:
        return not self._tuner or lives(self._tuner)

    def _fails(self, error: Exception) -> NoReturn:
        """Something of ours went wrong: this training is of no use to the tuner any longer."""
        with contextlib.suppress(Exception):
            self._session.notice(f"Tuning failed within the training ({sentence(error)}).")
        with contextlib.suppress(Exception):
            if self._switching is not None:
                self._switching.training_ended(sentence(error), False)
            else:
                self._refuse(sentence(error), wait=False)
        self._stop()

    def _stop(self) -> NoReturn:
        """End this process at once; the tuner, or its watch, ends all that it has started."""
        self._done = True
        timer = threading.Timer(END_SECONDS, os._exit, (0,))
        timer.daemon = True
        with contextlib.suppress(Exception):
            timer.start()
        with contextlib.suppress(Exception):
            from .. import active

            active.end()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
