"""IMDb's film reviews as the study has them: numbers of words, and for fastText of pairs of words."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whyidle.errors import DataError

from .arrays import Arrays
from .fetch import fetch
from .whole import require_whole

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
ARCHIVE = "aclImdb_v1.tar.gz"
ARCHIVE_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
VOCABULARY = 20_000
"""Numbers that words have; rarer words share `UNKNOWN`."""
BEGIN, UNKNOWN, FIRST = 1, 2, 4
"""As Keras numbers them: 0 pads, the commonest word is 4."""
SAMPLES = 25_000
"""In either split, half of them of each class."""
TITLE = "IMDb's reviews"
SEED = 113
"""Of the order of the reviews, as in Keras."""
STAND_IN = "IMDb's reviews (random words, some more frequent in one class)"

Words = npt.NDArray[np.int32]
_WORD = re.compile(r"[a-z0-9']+")
_GET = f"Get the texts from {URL}, or run `whyidle data cost --out DIR`."
_MEDIAN_WORDS, _SPREAD, _MOST_WORDS = 180, 0.7, 2500
"""Of a made review: log-normal lengths."""
_ZIPF = 1.2
"""Exponent with which 25,000 made reviews have a million different pairs, as the study's had more than."""
_TELLING, _TELLING_SHARE = 400, 0.06
"""Words that tell a class of made reviews, and how much of a review they are."""


@dataclass(frozen=True)
class Reviews:
    words: Words
    """Of all reviews, one after another."""
    ends: npt.NDArray[np.int64]
    """`[reviews]`: where each ends."""
    labels: npt.NDArray[np.int64]
    """1 of praise, 0 of blame."""
    stand_in: str | None
    others: tuple[str, ...] = ()
    """How they are not those of the published set, a sentence each."""
    title: str | None = None
    """Of the set; `None` of a stand-in."""

    def __len__(self) -> int:
        return len(self.ends)

    def only(self, count: int | None) -> Reviews:
        """The first so many."""
        if count is None or count >= len(self):
            return self
        ends = self.ends[:count]
        return replace(self, words=self.words[: ends[-1]], ends=ends, labels=self.labels[:count])

    def each(self) -> Iterator[Words]:
        start = 0
        for end in self.ends.tolist():
            yield self.words[start:end]
            start = end


def words_only(reviews: Reviews, length: int) -> Arrays:
    """The last `length` words of each review, padded in front."""
    return _arrays(reviews, padded(reviews.each(), len(reviews), length), VOCABULARY)


def with_bigrams(reviews: Reviews, training: Reviews, length: int) -> Arrays:
    """Words, and behind them every pair of neighbours that the training reviews have, numbered from 20001 on; the last
    `length` of all these."""
    known = np.unique(np.concatenate([_pairs(each) for each in training.each()]))
    rows = (np.concatenate((each, _known(_pairs(each), known))) for each in reviews.each())
    return _arrays(reviews, padded(rows, len(reviews), length), VOCABULARY + 1 + len(known))


def padded(rows: Iterable[npt.NDArray[Any]], count: int, length: int) -> npt.NDArray[np.int64]:
    """`[count, length]`: the end of each row, zeros in front where it is shorter."""
    made = np.zeros((count, length), np.int64)
    for into, row in zip(made, rows, strict=True):
        kept = row[-length:]
        into[length - len(kept) :] = kept
    return made


def _arrays(reviews: Reviews, rows: npt.NDArray[np.int64], symbols: int) -> Arrays:
    facts = {"symbols": symbols} | ({"set": reviews.title} if reviews.title else {})
    return Arrays(rows, reviews.labels, "review", reviews.stand_in, facts=facts, said=reviews.others)


def _pairs(words: Words) -> npt.NDArray[np.int64]:
    """Neighbours as one number each."""
    return words[:-1].astype(np.int64) * VOCABULARY + words[1:]


def _known(pairs: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers of those pairs that are known."""
    if not len(known):
        return known
    places = np.searchsorted(known, pairs).clip(max=len(known) - 1)
    numbers: npt.NDArray[np.int64] = places[known[places] == pairs] + VOCABULARY + 1
    return numbers


def stand_in(split: str, samples: int | None, seed: int) -> Reviews:
    """Made reviews, as many as IMDb has or only `samples`: words by Zipf's law, a few of which tell the class."""
    count = min(samples or SAMPLES, SAMPLES)
    random = np.random.default_rng([seed, int(split == "test")])
    labels = random.integers(2, size=count)
    lengths = np.exp(random.normal(np.log(_MEDIAN_WORDS), _SPREAD, count)).clip(10, _MOST_WORDS).astype(np.int64)
    ends = lengths.cumsum()
    total = int(ends[-1])
    ranks = VOCABULARY - FIRST
    heaps = np.cumsum(np.arange(1, ranks + 1) ** -_ZIPF)
    words = np.searchsorted(heaps, random.random(total) * heaps[-1]).clip(max=ranks - 1)
    telling = random.random(total) < _TELLING_SHARE
    words[telling] = random.integers(_TELLING, size=telling.sum()) * 2 + np.repeat(labels, lengths)[telling] + 100
    numbered = (words + FIRST).astype(np.int32)
    numbered[ends - lengths] = BEGIN
    return Reviews(numbered, ends, labels, STAND_IN)


@lru_cache(maxsize=2)
def open_reviews(folder: Path, split: str) -> Reviews:
    """A split of aclImdb, from its folder of texts or its archive, its words numbered by how often the training
    reviews have them.

    Raises:
        DataError: the texts are not there, or not as they should be.
    """
    train, numbers = _training(folder)
    return train if split == "train" else _numbered(folder, split, _texts(folder, split), numbers)


@lru_cache(maxsize=1)
def _training(folder: Path) -> tuple[Reviews, dict[str, int]]:
    """The training reviews and the numbers of their words; read once a process, other splits want the numbers."""
    texts = _texts(folder, "train")
    counts: Counter[str] = Counter()
    for words, _ in texts:
        counts.update(words)
    # By number, then by name: the same numbers on every machine.
    common = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - FIRST]
    numbers = {word: FIRST + rank for rank, word in enumerate(common)}
    return _numbered(folder, "train", texts, numbers), numbers


def _numbered(folder: Path, split: str, wanted: Sequence[tuple[list[str], int]], numbers: dict[str, int]) -> Reviews:
    """A split in Keras's order."""
    order = np.random.default_rng(SEED).permutation(len(wanted))
    rows = [
        np.array([BEGIN, *(numbers.get(word, UNKNOWN) for word in wanted[at][0])], np.int32) for at in order.tolist()
    ]
    ends = np.cumsum([len(row) for row in rows])
    labels = np.array([wanted[at][1] for at in order.tolist()], np.int64)
    each = SAMPLES // 2
    others = tuple(
        f"{folder} does not hold the published reviews: aclImdb/{split}/{name} has {count}, not {each}."
        for name, count in zip(("neg", "pos"), np.bincount(labels, minlength=2).tolist(), strict=True)
        if count != each
    )
    return Reviews(np.concatenate(rows), ends, labels, None, others, f"{folder}, not {TITLE}" if others else TITLE)


def download(folder: Path, say: Callable[[str], None]) -> None:
    """The archive, into the folder.

    Raises:
        DataError: it cannot be had.
    """
    fetch([URL], folder / ARCHIVE, md5=ARCHIVE_MD5, say=say)


def _texts(folder: Path, split: str) -> Sequence[tuple[list[str], int]]:
    """Words and label of every review of a split, in the order of their names."""
    for place in (folder, folder / "aclImdb"):
        if (place / split / "pos").is_dir():
            return _unpacked(place / split)
    if (folder / ARCHIVE).is_file():
        return _packed(folder / ARCHIVE, split)
    if list(folder.glob("imdb*.npz")):
        raise DataError(f"{folder} holds imdb.npz, whose lists are pickles, which can run code when read. {_GET}")
    raise DataError(f"{folder} holds no reviews: neither aclImdb/{split}/pos/ nor {ARCHIVE}. {_GET}")


def _unpacked(place: Path) -> list[tuple[list[str], int]]:
    found = []
    for label, name in enumerate(("neg", "pos")):
        files = sorted((place / name).glob("*.txt"))
        if not files:
            raise DataError(f"{place / name} holds no reviews (.txt). {_GET}")
        for file in files:
            try:
                found.append((_split(file.read_bytes(), str(file)), label))
            except OSError as error:
                raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    return found


def _packed(archive: Path, split: str) -> list[tuple[list[str], int]]:
    wanted = {f"aclImdb/{split}/{name}": label for label, name in enumerate(("neg", "pos"))}
    found: list[tuple[str, list[str], int]] = []
    require_whole(archive, ARCHIVE_MD5, _GET)
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                folder, _, _ = member.name.rpartition("/")
                if folder in wanted and member.isfile() and (file := tar.extractfile(member)) is not None:
                    found.append((member.name, _split(file.read(), member.name), wanted[folder]))
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{archive} cannot be read: {error}. {_GET}") from error
    if not found:
        raise DataError(f"{archive} holds no reviews in aclImdb/{split}/. {_GET}")
    return [(words, label) for _, words, label in sorted(found)]


def _split(text: bytes, where: str) -> list[str]:
    try:
        words = _WORD.findall(text.decode("utf-8").lower().replace("<br />", " "))
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 text: {error}. {_GET}") from error
    if not words:
        raise DataError(f"{where} has no words. {_GET}")
    return words
