"""Which stage of making a batch, or of handing it over, a stack stands in, and how the stages divide the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.planted_stacks import CONTENTS, FETCHING, LOOP, OPEN, WAITING
from support.planted_stacks import FETCH as FETCHER
from support.planted_stacks import WORKER as MAKER
from support.stacks import FETCH, LIB, NEXT, TORCH, WORKER, stack
from whyidle.analyse.where.looks import Looks
from whyidle.analyse.where.stages import (
    OTHER,
    SAMPLE,
    Stages,
    Standing,
    in_state,
    making_stages,
    stage_of,
)
from whyidle.record.schema import NOT_MEASURED, STACK, ThreadState
from whyidle.record.stacks import Call, CallStack, StackNames, read_stacks
from whyidle.scenarios.planted import MS, START

ITEM = "/d.py:D.__getitem__"
LAUNCH = f"{LIB}/multiprocessing/popen_fork.py:_launch"
VISION = "/venv/lib/python3.12/site-packages/torchvision/transforms"


def told(*frames: str, text: str = "", transforms: tuple[str, ...] = ()) -> Standing | None:
    # Forked workers carry the stack of the training that forked them.
    return stage_of(stack(NEXT, LAUNCH, WORKER, FETCH, *frames, text=text), transforms)


@pytest.mark.parametrize(
    ("frames", "text", "expected"),
    [
        ([f"{TORCH}/utils/data/_utils/collate.py:default_collate"], "", "collate"),
        (["/d.py:pad_collate", "/d.py:collate_fn"], "return torch.stack(images)", "collate"),
        ([ITEM, "/x/PIL/Image.py:Image.convert", "/x/PIL/ImageFile.py:ImageFile.load"], "", "decode"),
        ([ITEM, "/x/PIL/Image.py:open", "/x/PIL/JpegImagePlugin.py:jpeg_factory"], "", "open"),
        ([ITEM, "/x/PIL/Image.py:Image.resize"], "return self._new(self.im.resize(size, resample, box))", "transform"),
        ([ITEM, f"{LIB}/zipfile.py:ZipFile.__init__", f"{LIB}/zipfile.py:ZipFile._RealGetContents"], "", "open"),
        ([ITEM, f"{LIB}/zipfile.py:ZipFile._RealGetContents"], "filename = filename.decode('cp437')", "open"),
        ([ITEM, f"{LIB}/zipfile.py:ZipExtFile.read"], "", "read"),
        ([ITEM, f"{LIB}/gzip.py:GzipFile.read", f"{LIB}/_compression.py:DecompressReader.readall"], "", "decompress"),
        ([ITEM, f"{LIB}/tarfile.py:TarFile.getmember", f"{LIB}/tarfile.py:TarFile.next"], "", "open"),
        ([ITEM, "/x/h5py/_hl/files.py:make_fid"], "", "open"),
        ([ITEM, "/x/h5py/_hl/dataset.py:Dataset.__getitem__"], "", "read"),
        ([ITEM, f"{LIB}/json/decoder.py:JSONDecoder.raw_decode"], "", "parse"),
        ([ITEM, "/x/pandas/io/parsers/readers.py:read_csv"], "", "parse"),
        ([ITEM, "/x/pandas/core/indexing.py:_iLocIndexer.__getitem__"], "", "table"),
        ([ITEM, "/x/transformers/tokenization_utils.py:PreTrainedTokenizer._tokenize"], "", "tokenise"),
        ([ITEM, "/d.py:Reader.tokenize"], "words = pattern.findall(text)", "tokenise"),
        ([ITEM, f"{LIB}/http/client.py:HTTPResponse.read", f"{LIB}/ssl.py:SSLSocket.read"], "", "read"),
        ([ITEM, f"{LIB}/threading.py:Condition.wait"], "", "lock"),
        ([ITEM, "<frozen importlib._bootstrap>:_find_and_load"], "", "import"),
        ([ITEM], "data = open(path, 'rb').read()", "read"),
        ([ITEM], "with open(path) as file:", "open"),
        ([ITEM], "return to_tensor(Image.open(file))", "sample"),
        ([ITEM], "return cv2.imdecode(raw, 1)", "decode"),
        ([ITEM], "image = cv2.imread(path)", "decode"),
        ([ITEM], "pixels = np.frombuffer(zlib.decompress(self.file.read(length)), np.uint8)", "decompress"),
        ([ITEM], "return json.loads(line)", "parse"),
        ([ITEM], "x = np.load(path)", "read"),
        ([ITEM], "fcntl.flock(handle, fcntl.LOCK_EX)", "lock"),
        ([ITEM], "with self.lock:", "lock"),
        ([ITEM], "time.sleep(0.1)", "wait"),
        ([ITEM], "name = raw.decode('utf-8')", "sample"),
        ([ITEM, "/d.py:D.decode"], "x = 1", "decode"),
        ([ITEM], "return x, y", "sample"),
    ],
)  # fmt: skip
def test_the_stage_of_making_a_batch_is_told(frames: list[str], text: str, expected: str) -> None:
    found = told(*frames, text=text)
    assert found is not None
    assert found[0] == expected


def test_what_collate_fn_calls_belongs_to_collating_where_no_row_knows_it() -> None:
    fetch = stack(NEXT, WORKER, FETCH, text="return self.collate_fn(data)")
    assert stage_of((*fetch, Call("stack", "/d.py", 9, "return torch.tensor(data)"))) == ("collate", "")
    assert stage_of(fetch) == ("collate", "")
    tokenising = Call("_encode", "/x/tokenizers/__init__.py", 9)
    assert stage_of((*fetch, Call("batchify", "/d.py", 9), tokenising)) == ("tokenise", "")


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        (["Compose.__call__", "RandomResizedCrop.forward", "resize"], "RandomResizedCrop"),
        (["Compose.forward", "Resize.transform"], "Resize"),
        (["RandomApply.forward", "ColorJitter.forward"], "ColorJitter"),
        (["normalize"], "normalize"),
    ],
)
def test_a_transform_of_a_library_has_the_name_of_the_class_that_does_it(frames: list[str], name: str) -> None:
    files = {"Compose.forward": "v2/_container.py", "Resize.transform": "v2/_geometry.py"}
    stack = (f"{VISION}/{files.get(frame, 'transforms.py')}:{frame}" for frame in frames)
    assert told(ITEM, *stack) == ("transform", name)


def test_decoding_within_a_transform_is_decoding() -> None:
    # PIL decodes when the pixels are asked for.
    inner = "/x/PIL/Image.py:Image.resize", "/x/PIL/ImageFile.py:ImageFile.load"
    assert told(ITEM, f"{VISION}/transforms.py:Resize.forward", *inner) == ("decode", "")


def test_a_transform_of_the_programs_own_has_the_name_that_it_was_timed_by() -> None:
    frames = ITEM, "/d.py:Mixed.__call__", "/d.py:Mixed._noise"
    assert told(*frames, text="x = x + noise") == (SAMPLE, "")
    assert told(*frames, text="x = x + noise", transforms=("Mixed",)) == ("transform", "Mixed")
    local = told(ITEM, "/d.py:main.<locals>.jitter", transforms=("main.jitter",))
    assert local == ("transform", "main.jitter")
    assert told(*frames, "/x/PIL/ImageFile.py:ImageFile.load", transforms=("Mixed",)) == ("decode", "")


@pytest.mark.parametrize(
    ("stage", "state", "told"),
    [
        (SAMPLE, ThreadState.SHARED_LOCK, "lock"),
        (SAMPLE, ThreadState.FILE, "read"),
        (SAMPLE, ThreadState.RUNS, SAMPLE),
        (SAMPLE, NOT_MEASURED, SAMPLE),
        ("decode", ThreadState.LOCK, "decode"),
    ],
)
def test_where_no_row_tells_the_kernel_does(stage: str, state: int, told: str) -> None:
    assert in_state((stage, ""), state) == (told, "")


FILE = "/home/me/data.py"
MADE: dict[str, CallStack] = {
    "open": (OPEN, CONTENTS),
    "decode": (Call("Shards.__getitem__", FILE, 29), Call("ImageFile.load", "/x/site-packages/PIL/ImageFile.py", 3)),
    "transform": (
        Call("Shards.__getitem__", FILE, 30),
        Call("RandomCrop.forward", "/x/site-packages/torchvision/transforms/transforms.py", 3),
    ),
    "collate": (Call("default_collate", "/x/site-packages/torch/utils/data/_utils/collate.py", 3),),
    "sample": (Call("Shards.crop.<locals>.<listcomp>", FILE, 40, "[x for x in window]"),),
}
"""A stack below torch's fetcher for each of some stages."""


def made(stage: str) -> CallStack:
    return (*FETCHING[:2], LOOP, FETCHER, *MADE[stage])


def planted(stages: Sequence[str | None], state: int = ThreadState.RUNS) -> Looks:
    """Looks at a worker, of which each sees such a stage; `None`: it failed."""
    return seen([() if stage is None else made(stage) for stage in stages], state)


def seen(stacks: Sequence[CallStack], state: int = ThreadState.RUNS) -> Looks:
    """A look that failed is an empty stack."""
    with TemporaryDirectory() as folder:
        names = StackNames(Path(folder))
        numbers = [names.number(stack) for stack in stacks]
        table = read_stacks(Path(folder))
    records = np.zeros(len(stacks), dtype=STACK.dtype)
    records["t_ns"] = START + 100 * MS * np.arange(len(stacks))
    records["process"], records["state"] = MAKER, state
    records["stack"] = numbers
    return Looks(records, table)


def of(looks: Looks, *transforms: str) -> Stages:
    found = making_stages(looks, "the time in which workers prepare batches", transforms)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(4))
def test_planted_shares_come_out_within_their_intervals(seed: int) -> None:
    shares = {"decode": 0.61, "open": 0.12, "transform": 0.14, "collate": 0.05, "sample": 0.08}
    drawn = Random(seed).choices(list(shares), list(shares.values()), k=400)
    found = of(planted(drawn))
    assert found.looks == 400
    # Of five intervals of 95 % one may miss.
    missed = [part.stage for part in found.parts if not part.share.low <= shares[part.stage] <= part.share.high]
    assert len(missed) <= 1
    assert found.costliest == ("decode", drawn.count("decode") / 400)
    decoding = found.parts[0]
    assert (decoding.stage, decoding.looks, decoding.calls) == ("decode", drawn.count("decode"), "ImageFile.load")
    assert decoding.at == MADE["decode"][0]


def test_the_rest_is_the_programs_own_code_by_its_function_and_line() -> None:
    found = of(planted(["sample"] * 30 + ["open"] * 10))
    own = found.parts[0]
    assert (own.stage, own.name, own.words, own.at) == ("sample", "Shards.crop", "Shards.crop", MADE["sample"][0])
    # What takes most has no name of a stage, so none is to be made cheaper.
    assert found.costliest is None


def test_own_code_that_waits_is_what_the_kernel_says_that_it_waits_for() -> None:
    found = of(planted(["sample"] * 30, ThreadState.SHARED_LOCK))
    assert [part.stage for part in found.parts] == ["lock"]
    assert found.costliest is None


def test_looks_that_failed_or_saw_nothing_made_count_for_nothing() -> None:
    assert of(planted(["open", None] * 20)).looks == 20
    assert of(seen([made("open"), WAITING] * 20)).looks == 20


def test_few_looks_tell_nothing() -> None:
    assert making_stages(planted(["open"] * 19), "making", ()) is None
    assert making_stages(seen([(), WAITING] * 20), "making", ()) is None


def test_what_lasts_from_look_to_look_counts_for_fewer_of_them() -> None:
    in_turn, at_once = ["open", "decode"] * 100, ["open"] * 100 + ["decode"] * 100
    (apart, _), (together, _) = (of(planted(which)).parts for which in (in_turn, at_once))
    assert apart.share.value == together.share.value == 0.5
    assert together.share.high - together.share.low > 2 * (apart.share.high - apart.share.low)


@given(st.lists(st.sampled_from([*MADE, None]), min_size=60, max_size=80).map(lambda s: ["open"] * 20 + s))
def test_the_parts_sum_to_the_whole(stages: list[str | None]) -> None:
    found = of(planted(stages))
    assert sum(part.share.value for part in found.parts) == pytest.approx(1)
    assert sum(part.looks for part in found.parts) == found.looks == len([s for s in stages if s is not None])
    assert all(0 <= part.share.low <= part.share.value <= part.share.high <= 1 for part in found.parts)


def test_stages_that_are_too_small_are_told_together() -> None:
    found = of(planted(["open"] * 96 + ["decode", "collate"] * 2))
    assert [(part.stage, part.looks, part.words) for part in found.parts] == [
        ("open", 96, "opening files"),
        (OTHER, 4, "all else"),
    ]
