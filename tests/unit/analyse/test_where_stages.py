"""Which stage of making a batch, or of handing it over, a stack stands in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stacks import FETCH, LIB, NEXT, TORCH, WORKER, stack
from whyidle.analyse.where.stages import (
    HANDING_STAGES,
    REST,
    SAMPLE,
    STAGES,
    AtStage,
    handing_stage_of,
    in_state,
    stage_of,
)
from whyidle.record.schema import NOT_MEASURED, ThreadState
from whyidle.record.stacks import Call, CallStack

ITEM = "/d.py:D.__getitem__"
LAUNCH = f"{LIB}/multiprocessing/popen_fork.py:_launch"
VISION = "/venv/lib/python3.12/site-packages/torchvision/transforms"


def told(*frames: str, text: str = "", transforms: tuple[str, ...] = ()) -> AtStage | None:
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
    assert found.stage == expected


def test_outside_of_the_fetcher_nothing_is_made() -> None:
    assert stage_of(stack(NEXT, WORKER, f"{LIB}/multiprocessing/queues.py:Queue.get")) is None
    assert stage_of(()) is None


def test_what_collate_fn_calls_belongs_to_collating_where_no_row_knows_it() -> None:
    fetch = stack(NEXT, WORKER, FETCH, text="return self.collate_fn(data)")
    assert stage_of((*fetch, Call("stack", "/d.py", 9, "return torch.tensor(data)"))) == AtStage("collate")
    assert stage_of(fetch) == AtStage("collate")
    tokenising = Call("_encode", "/x/tokenizers/__init__.py", 9)
    assert stage_of((*fetch, Call("batchify", "/d.py", 9), tokenising)) == AtStage("tokenise")


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
    assert told(ITEM, *stack) == AtStage("transform", name)


def test_decoding_within_a_transform_is_decoding() -> None:
    # PIL decodes when the pixels are asked for.
    inner = "/x/PIL/Image.py:Image.resize", "/x/PIL/ImageFile.py:ImageFile.load"
    assert told(ITEM, f"{VISION}/transforms.py:Resize.forward", *inner) == AtStage("decode")


def test_a_transform_of_the_programs_own_has_the_name_that_it_was_timed_by() -> None:
    frames = ITEM, "/d.py:Mixed.__call__", "/d.py:Mixed._noise"
    assert told(*frames, text="x = x + noise") == AtStage(SAMPLE)
    assert told(*frames, text="x = x + noise", transforms=("Mixed",)) == AtStage("transform", "Mixed")
    local = told(ITEM, "/d.py:main.<locals>.jitter", transforms=("main.jitter",))
    assert local == AtStage("transform", "main.jitter")
    assert told(*frames, "/x/PIL/ImageFile.py:ImageFile.load", transforms=("Mixed",)) == AtStage("decode")


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
    assert in_state(AtStage(stage), state) == AtStage(told)


QUEUE, REDUCTION, CONNECTION = (f"{LIB}/multiprocessing/{name}.py" for name in ("queues", "reduction", "connection"))
TENSORS = f"{TORCH}/multiprocessing/reductions.py"


@pytest.mark.parametrize(
    ("frames", "text", "expected"),
    [
        ([f"{QUEUE}:Queue._feed", f"{REDUCTION}:dumps"], "", "pickle"),
        ([f"{REDUCTION}:dumps", f"{TENSORS}:reduce_tensor"], "", "share"),
        ([f"{CONNECTION}:Connection._send"], "", "send"),
        ([f"{CONNECTION}:Connection._recv"], "", "receive"),
        ([f"{QUEUE}:Queue.get"], "return _ForkingPickler.loads(res)", "unpickle"),
        ([f"{QUEUE}:Queue.get", f"{TENSORS}:rebuild_storage_fd"], "", "map"),
        ([f"{TENSORS}:rebuild_storage_fd", f"{CONNECTION}:Connection._recv"], "", "map"),
        ([f"{LIB}/multiprocessing/resource_sharer.py:R._serve", f"{CONNECTION}:Connection._send"], "", "share"),
        ([f"{TORCH}/utils/data/_utils/pin_memory.py:pin_memory"], "return data.pin_memory()", "pin"),
        ([f"{QUEUE}:Queue._feed"], "notempty.wait()", REST),
    ],
)
def test_the_stage_of_handing_over_is_told(frames: list[str], text: str, expected: str) -> None:
    assert handing_stage_of(stack(*frames, text=text)) == AtStage(expected)


names = st.text(max_size=20)
any_stack = st.lists(st.builds(Call, names, names, st.integers(0, 9), names), min_size=1, max_size=6).map(tuple)


@given(any_stack)
def test_every_stack_has_a_stage_that_has_words(seen: CallStack) -> None:
    found, handed = stage_of((*stack(NEXT, FETCH), *seen)), handing_stage_of(seen)
    assert found is not None
    assert found.stage in STAGES
    assert handed is not None
    assert handed.stage in HANDING_STAGES
