"""What making a sample consists of, each part to be done alone: what no loader can be faster than.

The rule, fixed before any loader was tuned against it: a core that makes samples reads, decodes and transforms them one
after the other, so the times of these parts add up, and all cores at once make as many samples as they do all of the
parts. Decoding is libjpeg-turbo's, in the scale that the view of each sample allows: never below what it is resized to,
and not at all where nothing of the image is seen. Transforming is the stages' own draws, then colours, resizing and
normalising, each by the fastest library that is installed and on the fewest pixels that will do. Stages that have to
see pixels are called as they are. What a loader can do without is measured aside: decoding the whole image, and copying
samples into a batch, for they can be made in their place, and batches into fresh memory that processes share, for
threads need none. What goes on beside the making (`BESIDE`) only bounds it.

Nothing here is used by a loader, and nothing here uses one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from itertools import cycle
from math import ceil
from mmap import PAGESIZE, mmap
from pathlib import Path
from queue import SimpleQueue
from socket import recv_fds, send_fds, socketpair
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL.Image import Resampling

from .order import randomness
from .stages import Normalise, recoloured
from .view import View, viewed

if TYPE_CHECKING:  # the protocol imports torch, which is not needed here
    from .protocol import Dataset, Image, Settings, Stage, Targets

READ, UNCACHED, WHOLE, DECODE = "read", "read, not cached", "decode whole", "decode"
DRAW, COLOURS, RESIZE = "draw", "colours", "resize"
COLLATE, BY_THREADS, BY_PROCESSES = "collate", "hand over to a thread", "hand over to a process"
ASIDE = (WHOLE, COLLATE, BY_PROCESSES)
"""Measured, and not of the limit."""
BESIDE = (BY_THREADS,)
OF_BATCHES = (BY_THREADS, BY_PROCESSES)
"""Done for a whole batch at a time."""
KEPT_BYTES = 96 << 20
"""What a process keeps in memory of decoded samples, at most; too much for a cache."""
LEAST_KEPT = 8


def chosen(dataset: Dataset, process: int, processes: int, most: int = 320) -> list[int]:
    """Samples for one of several processes: evenly from all of the data, no two processes the same ones."""
    count = len(dataset)
    every = np.linspace(0, count - 1, min(count, most)).astype(np.int64)
    return every[process::processes].tolist() or [process % count]


@dataclass
class _Made:
    """A sample, as far as it is made."""

    index: int
    data: bytes | memoryview
    image: Image
    targets: Targets
    random: np.random.Generator

    @property
    def nbytes(self) -> int:
        return len(self.data) + int(self.image.nbytes)


@dataclass
class _Seen:
    """A photograph before its first stage that sees pixels, and its view until then."""

    index: int
    data: bytes | memoryview
    view: View
    decoded: Image | None
    """What is seen of it, in the scale of the view; `None` where nothing is."""
    canvas: Image
    """As large as the view makes it."""
    around: Image
    """A row of what is seen where the image is not."""

    @property
    def nbytes(self) -> int:
        return len(self.data) + self.canvas.nbytes + (0 if self.decoded is None else int(self.decoded.nbytes))

    @property
    def size(self) -> tuple[int, int]:
        return self.view.image_height, self.view.image_width


_Kept = TypeVar("_Kept", _Made, _Seen)


def parts(dataset: Dataset, indices: Sequence[int], settings: Settings) -> dict[str, Callable[[], object]]:
    """Each part of making one of these samples, in the order in which they are done; called again, of the next one.

    Raises:
        DataError: one of the samples is missing or broken.
    """
    told = _told(dataset, indices, settings)
    found: dict[str, Callable[[], object]] = {READ: _in_turn(dataset.read, indices)}
    if hasattr(dataset, "path") and (cold := uncached([dataset.path(index) for index in indices])) is not None:
        found[UNCACHED] = cold
    if told:
        photos = _within(KEPT_BYTES, (_seen(dataset, told, index, settings) for index in indices))
        indices = [each.index for each in photos]
        found[WHOLE] = _in_turn(decoded, [(each.data, None) for each in photos])
        found[DECODE] = _in_turn(decoded, [(each.data, each.view) for each in photos])
        drawn = [(dataset, told, each.index, settings, each.size) for each in photos]
        found[DRAW] = _in_turn(_drawn, drawn)
        found[COLOURS] = _in_turn(_recolour, photos)
        found[RESIZE] = _in_turn(_resize, photos)
        samples = [
            _Made(each.index, each.data, each.canvas, *_drawn(*asked)[1:3])
            for each, asked in zip(photos, drawn, strict=True)
        ]
    else:
        samples = _within(KEPT_BYTES, (_decoded_by(dataset, index, settings) for index in indices))
        found[DECODE] = _in_turn(lambda each: dataset.decode(each.data, each.index), samples)
    for stage in dataset.stages[len(told) :]:
        found[type(stage).__name__.lower()] = _alone(stage, samples)
        for each in samples:
            each.image, each.targets = stage(each.image, each.targets, each.random)
    shape, dtype = samples[0].image.shape, samples[0].image.dtype
    batch = np.ones((settings.batch_size, *shape), dtype)
    found[COLLATE] = into_a_batch([each.image for each in samples], batch)
    found[BY_THREADS] = to_a_thread(batch)
    found[BY_PROCESSES] = lambda: to_a_process(batch)
    return found


def decoding(files: Sequence[str]) -> Callable[[], object]:
    """Decodes one of these files after the other, whole, from memory."""
    return _in_turn(decoded, [(Path(name).read_bytes(), None) for name in files])


def decoder() -> str:
    """The library that decodes JPEG files here the fastest: libjpeg-turbo in all cases, with less or more around it."""
    return "simplejpeg" if find_spec("simplejpeg") else "Pillow"


def transformer() -> str:
    """The library that changes colours and resizes here the fastest."""
    return "OpenCV" if find_spec("cv2") else "Pillow"


def decoded(data: bytes | memoryview, view: View | None) -> Image | None:
    """The whole image, or so much resolution as its view needs; `None` where nothing of it is seen."""
    if view is not None and not view.sees:
        return None
    divisor = 1 if view is None else _divisor(view)
    if decoder() == "simplejpeg":
        import simplejpeg

        least = {}
        if view is not None and divisor > 1:
            least = {"min_height": ceil(view.image_height / divisor), "min_width": ceil(view.image_width / divisor)}
        image: Image = simplejpeg.decode_jpeg(data, fastdct=True, fastupsample=True, **least)
        return image
    with PillowImage.open(BytesIO(data)) as picture:
        picture.draft("RGB", (picture.width // divisor, picture.height // divisor))
        return np.asarray(picture.convert("RGB"))


def _within(most_bytes: int, samples: Iterator[_Kept]) -> list[_Kept]:
    """As many as memory is granted for."""
    kept: list[_Kept] = []
    held = 0
    for each in samples:
        kept.append(each)
        held += each.nbytes
        if held > most_bytes and len(kept) >= LEAST_KEPT:
            break
    return kept


def _in_turn(part: Callable[..., object], samples: Sequence[Any]) -> Callable[[], object]:
    turn = cycle(samples)

    def one() -> object:
        sample = next(turn)
        return part(*sample) if isinstance(sample, tuple) else part(sample)

    return one


def _told(dataset: Dataset, indices: Sequence[int], settings: Settings) -> Sequence[Stage]:
    """The first stages that need not see pixels of any of these samples, where they are JPEG files."""
    if not hasattr(dataset, "path"):
        return ()
    lefts = (_drawn(dataset, dataset.stages, index, settings, (400, 500))[3] for index in indices)
    return dataset.stages[: len(dataset.stages) - max(map(len, lefts))]


def _drawn(
    dataset: Dataset, told: Sequence[Stage], index: int, settings: Settings, size: tuple[int, int]
) -> tuple[View, Targets, np.random.Generator, Sequence[Stage]]:
    random = randomness(settings, 0, index)
    view, targets, left = viewed(told, size, dataset.targets(index), random)
    return view, targets, random, left


def _decoded_by(dataset: Dataset, index: int, settings: Settings) -> _Made:
    data = dataset.read(index)
    image = dataset.decode(data, index)
    return _Made(index, data, image, dataset.targets(index), randomness(settings, 0, index))


def _seen(dataset: Dataset, told: Sequence[Stage], index: int, settings: Settings) -> _Seen:
    data = dataset.read(index)
    height, width = dataset.decode(data, index).shape[:2]
    view, *_ = _drawn(dataset, told, index, settings, (height, width))
    found = decoded(data, view)
    if found is not None:
        top, left, bottom, right = view.part
        rows, columns = found.shape[0] / height, found.shape[1] / width
        found = found[int(top * rows) : ceil(bottom * rows), int(left * columns) : ceil(right * columns)]
    canvas = np.zeros((*(view.size or (view.height, view.width)), 3), np.uint8)
    around = np.tile(np.array(view.fill or (0, 0, 0), np.uint8), (canvas.shape[1], 1))
    return _Seen(index, data, view, found, canvas, around)


def _shown(view: View) -> tuple[int, int]:
    """How many rows and columns the part of the image takes that is seen, as resized."""
    height, width = view.size or (view.height, view.width)
    top, left, bottom, right = view.part
    return round((bottom - top) * height / view.height), round((right - left) * width / view.width)


def _divisor(view: View) -> int:
    """1, 2, 4 or 8, the scales for which libjpeg-turbo has vector code (others take longer than the whole image): the
    largest of which nothing is stretched again."""
    height, width = view.size or (view.height, view.width)
    shrunk = min(view.height / height, view.width / width)
    return max(divisor for divisor in (1, 2, 4, 8) if divisor == 1 or divisor <= shrunk)


def _recolour(photo: _Seen) -> object:
    """On the image as decoded or as resized, whichever has fewer pixels."""
    colours, rows, columns = photo.view.colours, *_shown(photo.view)
    if colours is None or photo.decoded is None or not (rows and columns):
        return None
    image = photo.decoded
    if rows * columns < image.shape[0] * image.shape[1]:
        image = photo.canvas[:rows, :columns]
    if transformer() == "Pillow":
        return recoloured(image, colours)
    import cv2

    if colours.before is not None:
        image = cv2.LUT(image, colours.before)
    if colours.in_hsv:
        # A channel taken out and put back takes a quarter of what a table for all three does.
        image = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
        hue = cv2.extractChannel(image, 0)
        cv2.insertChannel(np.add(hue, np.uint8(round(colours.turn) % 256), out=hue), image, 0)
        vivid = cv2.extractChannel(image, 1)
        cv2.insertChannel(cv2.convertScaleAbs(vivid, dst=vivid, alpha=colours.saturation), image, 1)
        image = cv2.cvtColor(image, cv2.COLOR_HSV2RGB_FULL)
    return image if colours.after is None else cv2.LUT(image, colours.after)


def _resize(photo: _Seen) -> object:
    """What is seen to its place in the sample, and what lies around it."""
    view, image, canvas = photo.view, photo.decoded, photo.canvas
    rows, columns = _shown(view)
    if view.fill is not None and (rows, columns) != canvas.shape[:2]:
        canvas[rows:] = photo.around
        canvas[:rows, columns:] = photo.around[columns:]
    if image is None or not (rows and columns):
        return None
    place = canvas[:rows, :columns]
    if view.size is None:
        place[:] = image[:rows, :columns]
        return place
    if transformer() == "Pillow":
        place[:] = PillowImage.fromarray(image).resize((columns, rows), view.filter)
        return place[:, ::-1]
    import cv2

    cv2.resize(image, (columns, rows), dst=place, interpolation=_FASTEST[view.filter])
    return cv2.flip(place, 1, dst=place) if view.mirrored else place


_FASTEST = {
    # OpenCV's numbers of nearest, linear and cubic: the nearest kin of each of Pillow's filters that takes no longer.
    Resampling.NEAREST: 0,
    Resampling.BOX: 1,
    Resampling.BILINEAR: 1,
    Resampling.HAMMING: 1,
    Resampling.BICUBIC: 2,
    Resampling.LANCZOS: 2,
}


def _alone(stage: Stage, samples: Sequence[_Made]) -> Callable[[], object]:
    """A stage that sees pixels, on samples as they come to it."""
    before = [(each.image, each.targets) for each in samples]
    random = np.random.default_rng(0)
    if isinstance(stage, Normalise) and transformer() == "OpenCV":
        return _in_turn(_normaliser(stage), [image for image, _ in before])
    return _in_turn(lambda image, targets: stage(image, targets, random), before)


def _normaliser(stage: Normalise) -> Callable[[Image], object]:
    import cv2

    means = [np.float32(mean) for mean in stage.mean]
    deviation = None if stage.deviation == (1.0, 1.0, 1.0) else np.array(stage.deviation, np.float32)[:, None, None]
    places: dict[tuple[int, ...], npt.NDArray[np.float32]] = {}

    def normalise(image: Image) -> object:
        if image.shape not in places:
            places[image.shape] = np.empty((3, *image.shape[:2]), np.float32)
        place = places[image.shape]
        for channel, plane in enumerate(cv2.split(image)):
            np.subtract(plane, means[channel], out=place[channel])
        return place if deviation is None else np.divide(place, deviation, out=place)

    return normalise


# Ways of getting files and batches to whoever needs them, each to be done alone.


def uncached(files: Sequence[Path]) -> Callable[[], object] | None:
    """Reads one file after the other from where it is stored: what the system keeps of it in memory is given up first.
    `None` where the system keeps it all the same, as of a file system that is in memory."""
    if not _forgotten(files[0]):
        return None
    turn = cycle(files)

    def one() -> object:
        with next(turn).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    return one


def _forgotten(path: Path) -> bool:
    """Whether the system gives a file up when asked to: then the file is not read without waiting."""
    try:
        with path.open("rb", buffering=0) as file:
            file.read()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # it cannot be told there
        return False
    return False


def into_a_batch(images: Sequence[Image], batch: Image) -> Callable[[], object]:
    """Copies one image after the other into its place in the batch."""
    turn, places = cycle(images), cycle(batch)

    def one() -> object:
        np.copyto(next(places), next(turn))
        return batch

    return one


def to_a_thread(batch: Image) -> Callable[[], object]:
    """Through a queue to another thread, and its answer back."""
    there: SimpleQueue[Image] = SimpleQueue()
    back: SimpleQueue[Image] = SimpleQueue()

    def answer() -> None:
        while True:
            back.put(there.get())

    Thread(target=answer, daemon=True).start()

    def one() -> object:
        there.put(batch)
        return back.get()

    return one


def to_a_process(batch: Image) -> object:
    """As torch's DataLoader does: into fresh shared memory, whose descriptor is sent, and which is then seen there."""
    here, there = socketpair()
    with here, there:
        file = os.memfd_create("whyidle-part")
        try:
            os.ftruncate(file, batch.nbytes)
            with mmap(file, batch.nbytes) as memory:
                made = np.ndarray(batch.shape, batch.dtype, buffer=memory)
                made[...] = batch
                del made
            send_fds(here, [b"1"], [file])
        finally:
            os.close(file)
        _, (received, *_), _, _ = recv_fds(there, 1, 1)
        try:
            with mmap(received, batch.nbytes) as memory:
                return sum(memory[place] for place in range(0, batch.nbytes, PAGESIZE))
        finally:
            os.close(received)
