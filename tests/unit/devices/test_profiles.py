"""Accelerator profiles: models of time and memory, their files, one's own too, and the page that shows them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import vgg16
from torchvision.models.detection import ssd

from whyidle.devices.profiles import load, names, nets
from whyidle.errors import WhyidleError
from whyidle.scenarios.convnets import nets as convnet_nets
from whyidle.scenarios.cost import nets as cost_nets
from whyidle.scenarios.fashion_mnist import nets as fashion_nets

BY_SPEED = ["k520", "k80", "titanx", "gtx1080", "p100", "v100", "a100", "h100", "h200"]
NETS = ["ssd300", "ssd512", "vgg16"]
FASHION = [f"fashion-{net}" for net in ("cnn1", "cnn2", "cnn3", "cnn4", "cnn5", "mlp")]
SCALED = ["alexnet", "googlenet", "inception_v3", "resnet50"]
BENCHMARKS = ["alexnet-forward", "alexnet-forward-backward"]
PRICED = ["cifar10-cnn", "mnist-cnn", "mnist-mlp"]
"""So small that launches and the host set their epochs, not arithmetic."""
PARTIAL = ["k40"]
"""Accelerators that were published with other nets alone."""
WINOGRAD = 2.25
"""F(2x2, 3x3) needs this much less than the MACs counted, so fp32 may seem to exceed its peak by it."""
PAGE = Path(__file__).parents[3] / "docs" / "accelerators.md"

accelerators = st.sampled_from(BY_SPEED)
net_names = st.sampled_from(NETS)
batch_sizes = st.integers(1, 512)


@given(accelerators, net_names, batch_sizes)
def test_a_larger_batch_takes_no_less_time_and_its_activations_more_memory(name: str, net: str, batch: int) -> None:
    known = load(name)
    assert known.launch_floor_ns(net) <= known.step_ns(net, batch) <= known.step_ns(net, batch + 1)
    needed = known.memory_bytes_needed
    assert needed(net, batch + 1) - needed(net, batch) == nets().nets[net].activation_bytes.value
    phases = known.phases(net, batch)
    assert phases.forward + phases.backward + phases.optimizer == pytest.approx(1)
    assert 0 < phases.forward < phases.backward
    assert 0 < phases.optimizer <= known.phases(net, 1).optimizer


@pytest.mark.parametrize("name", BY_SPEED)
def test_steps_go_through_every_known_batch_size_and_compute_no_more_than_the_accelerator_can(name: str) -> None:
    known = load(name)
    peak = known.peak.fp32_tflops.value * WINOGRAD
    if known.peak.tf32_tflops is not None:
        peak = known.peak.tf32_tflops.value
    for net, speed in known.nets.items():
        for size, rate in zip(speed.batch_sizes, speed.samples_per_s, strict=True):
            if size == int(size):
                assert known.step_ns(net, int(size)) == pytest.approx(size / rate * 1e9, rel=1e-6)
        tflops = 6 * speed.net.forward_macs.value * max(speed.samples_per_s) / 1e12
        assert (0.005 if net in PRICED else 0.05) * known.peak.fp32_tflops.value < tflops < peak


def test_one_known_batch_size_gives_floor_plus_a_constant_per_sample() -> None:
    gtx1080 = load("gtx1080")
    floor = gtx1080.launch_floor_ns("ssd300")
    assert floor == 347 * 3_800
    for batch in (1, 7, 8, 200):
        expected = floor + batch * (8 / 45.0 * 1e9 - floor) / 8
        assert gtx1080.step_ns("ssd300", batch) == pytest.approx(expected, abs=1)


def test_two_known_batch_sizes_are_joined_by_a_straight_line() -> None:
    at_32, at_64 = 32 / 144 * 1e9, 64 / 154 * 1e9
    for batch in (1, 48, 96):
        expected = at_32 + (batch - 32) * (at_64 - at_32) / 32
        assert load("p100").step_ns("vgg16", batch) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("net", NETS)
def test_order_of_speed_where_one_source_measured_both(net: str) -> None:
    rates = [16 / load(name).step_ns(net, 16) for name in BY_SPEED]
    assert rates == sorted(set(rates))


def test_the_optimizer_takes_the_time_of_its_memory_traffic() -> None:
    v100 = load("v100")
    nanoseconds = v100.phases("vgg16", 16).optimizer * v100.step_ns("vgg16", 16)
    assert nanoseconds == pytest.approx(5 * 4 * 138_357_544 / 900, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "net", "batch", "fits"),
    [
        ("k80", "ssd512", 24, True),  # 192 images on the 8 dies of a p2.8xlarge, in the study of SSD on AWS
        ("gtx1080", "ssd300", 32, True),  # amdegroot/ssd.pytorch#101
        ("v100", "vgg16", 96, True),  # lambdal/lambda-tensorflow-benchmark, 16 GB
        ("k520", "ssd300", 32, False),
        ("titanx", "ssd512", 32, False),
    ],
)
def test_what_people_ran_fits(name: str, net: str, batch: int, fits: bool) -> None:
    assert (load(name).memory_bytes_needed(net, batch) <= load(name).memory.bytes.value) == fits


def test_batch_8_of_ssd300_is_near_what_mmdetection_measured_without_autotuning() -> None:
    # model zoo of 2018-12, 81 classes: 3.5 GB
    assert load("v100").memory_bytes_needed("ssd300", 8) == pytest.approx(3.5e9, rel=0.2)


def test_an_emulated_device_gets_the_numbers() -> None:
    spec = load("a100").spec()
    assert (spec.name, spec.title, spec.memory_bytes) == ("a100", "NVIDIA A100 SXM4 40 GB", 42_298_834_944)
    assert (spec.pinned_bytes_per_s, spec.pageable_bytes_per_s, spec.copy_latency_ns) == (25.7e9, 10.0e9, 6_500)


def test_every_profile_is_there_and_says_where_its_nets_are_from() -> None:
    assert names() == sorted([*BY_SPEED, *PARTIAL])
    for name in names():
        assert load(name).name == name
        assert load(name).nets.keys() >= set(() if name in PARTIAL else NETS)
        assert not any("\n" in net.origin for net in load(name).nets.values())
    assert load("gtx1080").nets["ssd300"].origin.startswith("published: https://github.com/apache/mxnet/")
    assert load("v100").nets["ssd300"].origin.startswith("derived: ratio to v100/vgg16")


@pytest.mark.parametrize("name", [*BY_SPEED, *PARTIAL])
def test_derived_throughputs_are_what_their_inputs_give(name: str) -> None:
    """A quotient multiplies the rate. Nets of one kind compute at one pace: MACs multiply rate and batch size."""
    for known in load(name).nets.values():
        base = known.based_on
        if isinstance(base, str):
            other, _, net = base.partition("/")
            base = load(other).nets[net]
        rate = work = 1.0
        for factor in known.factors:
            if "forward_macs" in factor:
                more, less = (nets().nets[net].forward_macs.value for net in factor["forward_macs"])
                rate, work = rate * more / less, work * more / less
            else:
                rate *= factor["numerator"] / factor["denominator"]
        given = zip(base.batch_sizes, base.samples_per_s, strict=True) if base is not None else ()
        derived = [(size * work, had * rate) for size, had in given]
        for stated in zip(known.batch_sizes, known.samples_per_s, strict=True) if derived else ():
            assert any(stated == pytest.approx(each, rel=0.005) for each in derived)


def own(folder: Path, *changes: tuple[str, str]) -> str:
    """The path of a profile as that of the titanx, changed."""
    text = (resources.files("whyidle.devices.profiles") / "titanx.toml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


def test_the_example_of_an_own_profile_loads(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(example, encoding="utf-8")
    mine = load(str(tmp_path / "mine.toml"))
    assert mine.step_ns("ssd300", 8) == pytest.approx(8 / 190 * 1e9, abs=1)
    assert mine.nets["ssd300"].origin.startswith("recorded: 200 steps")
    assert mine.nets["ssd512"].origin == "derived: ratio to mine/ssd300: forward MACs"
    with pytest.raises(WhyidleError, match=r" has no net 'vgg16'. It has: ssd300, ssd512\.$"):
        mine.step_ns("vgg16", 8)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(WhyidleError, match=r"unknown accelerator 'rtx9090'.*a100, gtx1080, h100"):
        load("rtx9090")
    with pytest.raises(WhyidleError, match=r"cannot read .*absent\.toml: No such file"):
        load("/no/absent.toml")
    for asked in (load("v100").step_ns, load("v100").memory_bytes_needed):
        with pytest.raises(WhyidleError, match="batch size 0: must be at least 1"):
            asked("ssd300", 0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "titanx"', "name = titanx", "is not TOML: Invalid value"),
        ('name = "titanx"\n', "", ": Object missing required field `name`"),
        ("value = 336.5", 'value = "fast"', "memory.gb_per_s.value: Expected `float`, got `str`"),
        ("value = 336.5", "value = -1", "memory.gb_per_s.value: Expected `float` > 0"),
        ("value = 336.5", "value = nan", "memory.gb_per_s.value: Expected `float` > 0"),
        ("value = 336.5", "value = true", "memory.gb_per_s.value: Expected `float`, got `bool`"),
        ("value = 0.3232", "value = 1.5", "forward_share.value: expected a share below 1"),
        (
            "[kernel_us]\nvalue = 3.8\nderived",
            "[kernel_us]\nvalue = 3.8\nnote",
            "kernel_us: Object contains unknown field `note`",
        ),
        (
            "[kernel_us]",
            '[kernel_us]\nsource = "x"',
            "kernel_us: name its origin with exactly one of source, derived, recorded",
        ),
        ("[kernel_us]\nvalue = 3.8\nderived = ", "[kernel_us]\nvalue = 3.8\ndoubt = ", "kernel_us: name its origin"),
        ("[kernel_us]", "[kernel_ns]", "unknown field `kernel_ns`"),
        ("[nets.ssd512]", "[nets.yolo]", "nets.yolo: unknown net; the nets are ssd300, ssd512, vgg16"),
        ("batch_sizes = [16]", "batch_sizes = [16, 32]", "nets.vgg16: 1 values of samples_per_s for 2 batch sizes"),
        ("batch_sizes = [16]", "batch_sizes = [-16]", "nets.vgg16.batch_sizes[0]: Expected `float` > 0"),
        ("batch_sizes = [16]", "batch_sizes = []", "nets.vgg16: 1 values of samples_per_s for 0 batch sizes"),
        ("[16]\nsamples_per_s = [83.0]", "[16, 32]\nsamples_per_s = [83.0, 200]", "cannot take less time"),
        ("[nets.vgg16]", "[nets.vgg16]\nnet = 3", "nets.vgg16.net: Expected `object`, got `int`"),
        ("value = 336.5", "value = inf", "memory.gb_per_s.value: Expected `float` < 1e+300"),
    ],
)
def test_a_bad_file_gives_one_line_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = own(tmp_path, (old, new))
    with pytest.raises(WhyidleError) as caught:
        load(path)
    text = str(caught.value)
    assert message in text
    assert path in text
    assert "\n" not in text


def test_the_page_has_the_nets_of_each_profile_with_their_numbers() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    there = []
    for name in names():
        for net, known in load(name).nets.items():
            shown = [name, net]
            for values in (known.batch_sizes, known.samples_per_s):
                texts = [f"{round(value, 2):g}" for value in values]
                shown.append(", ".join(texts) if len(texts) < 4 else f"{texts[0]} to {texts[-1]}")
            there.append([*shown, known.kind])
    assert sorted(row for row in rows if {*row[:1]} & {*names()} and row[1] in nets().nets) == sorted(there)


COUNTED = [*NETS, *FASHION, *PRICED, "alexnet-forward-backward", "cifar10"]


@pytest.mark.parametrize("name", [*COUNTED, *(pytest.param(name, marks=pytest.mark.slow) for name in SCALED)])
def test_what_is_said_of_a_net_is_what_is_counted_from_torchvision_without_running_it(name: str) -> None:
    net = nets().nets[name]
    with torch.device("meta"):
        body, *shape = build(name)
        parameters = list(body.parameters())
        # Two at least: batch norm of vectors takes no single sample.
        with torch.no_grad(), FlopCounterMode(display=False) as flops:
            body(torch.empty(2, *shape))
        two, three = (saved_bytes(body, torch.empty(n, *shape)) for n in (2, 3))
        images = torch.empty(2, *shape)
        with Kernels() as forward:
            outputs = body(images)
        loss = sum(each.sum() for each in (outputs if isinstance(outputs, list | tuple) else [outputs]))
        with Kernels() as backward:
            loss.backward()
    assert net.forward_macs.value == flops.get_total_flops() / 4
    assert net.parameters.value == sum(p.numel() for p in parameters)
    assert net.activation_bytes.value == three - two
    optimizer = 0 if name in BENCHMARKS else len(parameters)
    counted = (forward.count, backward.count, optimizer)
    assert (net.kernels.forward, net.kernels.backward, net.kernels.optimizer) == counted
    assert net.kernels.total == forward.count + backward.count + optimizer


def test_a_forward_pass_alone_keeps_nothing_for_a_backward_one() -> None:
    alone, both = (nets().nets[name] for name in BENCHMARKS)
    assert (alone.forward_macs.value, alone.parameters.value) == (both.forward_macs.value, both.parameters.value)
    assert (alone.kernels.forward, alone.kernels.total) == (both.kernels.forward, both.kernels.forward)
    assert alone.activation_bytes.value == 2 * 64 * 56 * 56 * 4


class Detector(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.backbone = ssd._vgg_extractor(vgg16(), highres=size == 512, trainable_layers=5)
        anchors = [4, 6, 6, 6, 4, 4] if size == 300 else [4, 6, 6, 6, 6, 4, 4]
        self.head = ssd.SSDHead([512, 1024, 512, *[256] * (len(anchors) - 3)], anchors, num_classes=21)

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        return list(self.head(list(self.backbone(images).values())).values())


def build(name: str) -> tuple[Any, int, int, int]:
    """A net as a module that returns a tensor or a list of them, and the channels, height and width of its input."""
    if name in PRICED:
        return cost_nets.build(name, 0), *((3, 32, 32) if name == "cifar10-cnn" else (1, 28, 28))
    if name in convnet_nets.NETS:
        side = convnet_nets.INPUT_SIZE[name]
        return convnet_nets.build(name, 10 if name == "cifar10" else convnet_nets.CLASSES), 3, side, side
    if name in FASHION:
        return fashion_nets.build(name.removeprefix("fashion-")), 1, 28, 28
    size = {"vgg16": 224, "ssd300": 300, "ssd512": 512}[name]
    return (vgg16() if name == "vgg16" else Detector(size)), 3, size, size


def saved_bytes(body: Any, images: torch.Tensor) -> int:
    """Storages autograd keeps for the backward pass, parameters aside."""
    own = {p.untyped_storage()._cdata for p in body.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        body(images)
    return sum(storage.nbytes() for storage in kept.values())


class Kernels(TorchDispatchMode):
    """Counts operators that compute: 2 for a convolution with bias, 3 for its backward."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        name = func.overloadpacket.__name__
        if not is_view and name not in {"detach", "_unsafe_view", "empty_like"}:
            self.count += {"convolution": 2, "convolution_backward": 3}.get(name, 1)
        return func(*args, **(kwargs or {}))
