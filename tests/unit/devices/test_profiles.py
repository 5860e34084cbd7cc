"""Accelerator profiles: every number has an origin, derived ones recompute, and the models behave."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.devices.profiles import Accelerator
from whyidle.devices.profiles.load import load, names, nets
from whyidle.errors import WhyidleError

ACCELERATORS = ["a100", "gtx1080", "h100", "h200", "k520", "k80", "p100", "titanx", "v100"]
NETS = ["ssd300", "ssd512", "vgg16"]
FASHION = [f"fashion-{net}" for net in ("cnn1", "cnn2", "cnn3", "cnn4", "cnn5", "mlp")]
SCALED = ["alexnet", "googlenet", "inception_v3", "resnet50"]
BENCHMARKS = ["alexnet-forward", "alexnet-forward-backward"]
PRICED = ["cifar10-cnn", "mnist-cnn", "mnist-mlp"]
"""So small that launches and the host set their epochs, not arithmetic."""
STUDIED = {
    "a100": FASHION,
    "gtx1080": ["cifar10"],
    "h100": FASHION,
    "h200": FASHION,
    "k80": FASHION + SCALED + PRICED,
    "p100": [*SCALED, *BENCHMARKS, *PRICED, "cifar10"],
    "titanx": BENCHMARKS,
    "v100": FASHION + SCALED,
}
"""Nets that only some accelerators have: those of the study."""
PARTIAL = {"k40": [*BENCHMARKS, "cifar10"]}
"""Accelerators that were published with such nets alone."""

WINOGRAD = 2.25
"""F(2x2, 3x3) needs this much less than the MACs counted, so fp32 may seem to exceed its peak by it."""

accelerators = st.sampled_from(ACCELERATORS)
net_names = st.sampled_from(NETS)
batch_sizes = st.integers(1, 512)


def raw(file: str) -> dict[str, Any]:
    text = (resources.files("whyidle.devices.profiles") / file).read_text(encoding="utf-8")
    return tomllib.loads(text)


def raw_text(name: str) -> str:
    return (resources.files("whyidle.devices.profiles") / f"{name}.toml").read_text(encoding="utf-8")


def tables(value: object, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table in a TOML file, with its path."""
    if isinstance(value, dict):
        yield key, value
        for name, part in value.items():
            yield from tables(part, f"{key}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from tables(part, key)


class TestOrigins:
    def test_the_contract_names_are_there(self) -> None:
        assert names() == sorted([*ACCELERATORS, *PARTIAL])
        for name in ACCELERATORS:
            assert load(name).name == name
            assert sorted(load(name).nets) == sorted(NETS + STUDIED.get(name, []))

    @pytest.mark.parametrize("file", [*(f"{name}.toml" for name in [*ACCELERATORS, *PARTIAL]), "nets.toml"])
    def test_every_number_says_where_it_is_from(self, file: str) -> None:
        for key, table in tables(raw(file)):
            numbers = [
                name
                for name, value in table.items()
                if name != "input_size" and isinstance(value, int | float | list) and name != "factors"
            ]
            if numbers and "forward_macs" not in numbers:
                given = [origin for origin in ("source", "derived") if table.get(origin)]
                assert len(given) == 1, f"{file}: {key}: {numbers}"

    @pytest.mark.parametrize("name", ACCELERATORS)
    def test_a_published_figure_names_a_page_or_a_document(self, name: str) -> None:
        for key, table in tables(raw(f"{name}.toml")):
            source = table.get("source")
            if source is not None:
                known = ("https://", "http://", "NVIDIA ", "TensorFlow performance", "Public file", "gengwg")
                assert source.startswith(known), f"{key}: {source}"

    @pytest.mark.parametrize("name", ACCELERATORS)
    def test_derived_throughputs_carry_the_formula_that_gives_them(self, name: str) -> None:
        for net, table in raw(f"{name}.toml")["nets"].items():
            if "derived" not in table:
                continue
            assert table["derived"].startswith("ratio to "), net
            if isinstance(table["from"], str):
                assert table["derived"].startswith(f"ratio to {table['from']}:")
                other, base_net = table["from"].split("/")
                base = raw(f"{other}.toml")["nets"][base_net]
            else:
                base = table["from"]
            rate_factor = work_factor = 1.0
            for part in table["factors"]:
                if "forward_macs" in part:
                    above, below = (nets().nets[n].forward_macs.value for n in part["forward_macs"])
                    rate_factor *= above / below
                    work_factor *= above / below
                else:
                    rate_factor *= part["numerator"] / part["denominator"]
            stated = list(zip(table["batch_sizes"], table["samples_per_s"], strict=True))
            derived = [
                (size * work_factor, rate * rate_factor)
                for size, rate in zip(base["batch_sizes"], base["samples_per_s"], strict=True)
            ]
            for point, from_base in zip(stated, derived[-len(stated) :], strict=True):
                assert point == pytest.approx(from_base, rel=0.002)

    def test_derivations_end_at_published_figures(self) -> None:
        for name in ACCELERATORS:
            for net in NETS + STUDIED.get(name, []):
                seen = []
                at: object = f"{name}/{net}"
                while isinstance(at, str):
                    assert at not in seen, f"{at} is derived from itself"
                    seen.append(at)
                    accelerator, base_net = at.split("/")
                    table = raw(f"{accelerator}.toml")["nets"][base_net]
                    if "source" in table:
                        break
                    at = table["from"]
                else:
                    assert isinstance(at, dict)
                    assert at["source"]

    def test_provenance_tells_published_from_derived_on_one_line(self) -> None:
        assert load("gtx1080").provenance("ssd300").startswith("published: https://github.com/apache/mxnet/")
        assert load("v100").provenance("ssd300").startswith("derived: ratio to v100/vgg16")
        for name in ACCELERATORS:
            for net in NETS + STUDIED.get(name, []):
                assert "\n" not in load(name).provenance(net)


class TestCounts:
    """nets.toml, counted again from torchvision without running a net."""

    @pytest.mark.parametrize(
        "name",
        [
            *(pytest.param(name, marks=pytest.mark.slow) for name in SCALED),
            *(*NETS, *FASHION, *PRICED, "alexnet-forward-backward", "cifar10"),
        ],
    )
    def test_macs_parameters_activations_and_kernels(self, name: str) -> None:
        counted = count(name)
        net = nets().nets[name]
        assert counted["forward_macs"] == net.forward_macs.value
        assert counted["parameters"] == net.parameters.value
        assert counted["activation_bytes"] == net.activation_bytes.value
        assert counted["forward"] == net.kernels.forward
        assert counted["backward"] == net.kernels.backward
        assert counted["optimizer"] == net.kernels.optimizer
        assert net.kernels.total == counted["forward"] + counted["backward"] + counted["optimizer"]

    def test_a_forward_pass_alone_keeps_nothing_for_a_backward_one(self) -> None:
        alone, both = (nets().nets[name] for name in BENCHMARKS)
        assert (alone.forward_macs.value, alone.parameters.value) == (both.forward_macs.value, both.parameters.value)
        assert (alone.kernels.forward, alone.kernels.total) == (both.kernels.forward, both.kernels.forward)
        assert alone.activation_bytes.value == 2 * 64 * 56 * 56 * 4


class TestStepTime:
    @given(accelerators, net_names, batch_sizes)
    def test_a_larger_batch_never_takes_less_time(self, name: str, net: str, batch: int) -> None:
        accelerator = load(name)
        assert 0 < accelerator.step_ns(net, batch) <= accelerator.step_ns(net, batch + 1)
        assert accelerator.step_ns(net, batch) >= accelerator.launch_floor_ns(net)

    @pytest.mark.parametrize("name", ACCELERATORS)
    @pytest.mark.parametrize("net", NETS)
    def test_goes_through_every_known_batch_size(self, name: str, net: str) -> None:
        known = load(name).nets[net]
        for size, rate in zip(known.batch_sizes, known.samples_per_s, strict=True):
            if size >= 1:
                left, right = (load(name).step_ns(net, n) for n in (int(size), int(size) + 1))
                assert left <= round(size / rate * 1e9) <= right
            if size == int(size):
                assert load(name).step_ns(net, int(size)) == pytest.approx(size / rate * 1e9, rel=1e-6)

    def test_one_known_batch_size_gives_floor_plus_a_constant_per_sample(self) -> None:
        gtx1080 = load("gtx1080")
        floor = gtx1080.launch_floor_ns("ssd300")
        assert floor == 347 * 3_800
        per_sample = (8 / 45.0 * 1e9 - floor) / 8
        for batch in (1, 7, 8, 200):
            assert gtx1080.step_ns("ssd300", batch) == pytest.approx(floor + batch * per_sample, abs=1)

    def test_two_known_batch_sizes_are_joined_by_a_straight_line(self) -> None:
        p100 = load("p100")
        at_32, at_64 = 32 / 144 * 1e9, 64 / 154 * 1e9
        assert p100.step_ns("vgg16", 48) == pytest.approx((at_32 + at_64) / 2, abs=1)
        slope = (at_64 - at_32) / 32
        assert p100.step_ns("vgg16", 96) == pytest.approx(at_64 + 32 * slope, abs=1)
        assert p100.step_ns("vgg16", 1) == pytest.approx(at_32 - 31 * slope, abs=1)

    def test_a_step_of_the_same_work_takes_the_same_time(self) -> None:
        v100 = load("v100")
        macs = {net: known.net.forward_macs.value for net, known in v100.nets.items()}
        work = 32 * macs["ssd300"]
        for net in NETS:
            batch = work / macs[net]
            below, above = (v100.step_ns(net, n) for n in (int(batch), int(batch) + 1))
            assert below * 0.995 <= v100.step_ns("ssd300", 32) <= above * 1.005

    @pytest.mark.parametrize("net", NETS)
    def test_order_of_speed_where_one_source_measured_both(self, net: str) -> None:
        def rate(name: str, batch: int) -> float:
            return batch / load(name).step_ns(net, batch)

        for slower, faster in [
            ("k520", "k80"),
            ("k80", "titanx"),
            ("titanx", "gtx1080"),
            ("gtx1080", "p100"),
            ("p100", "v100"),
            ("v100", "a100"),
            ("a100", "h100"),
            ("h100", "h200"),
        ]:
            assert rate(slower, 16) < rate(faster, 16), f"{slower} {faster}"

    @pytest.mark.parametrize("name", ACCELERATORS)
    def test_no_net_computes_more_than_the_accelerator_can(self, name: str) -> None:
        accelerator = load(name)
        peak = accelerator.peak_fp32_tflops.value * WINOGRAD
        if accelerator.peak_tf32_tflops is not None:
            peak = accelerator.peak_tf32_tflops.value
        for known in accelerator.nets.values():
            tflops = 6 * known.net.forward_macs.value * max(known.samples_per_s) / 1e12
            least = 0.005 if known.net.name in PRICED else 0.05
            assert least * accelerator.peak_fp32_tflops.value < tflops < peak

    @given(accelerators, net_names, batch_sizes)
    def test_phases_share_the_whole_step(self, name: str, net: str, batch: int) -> None:
        phases = load(name).phases(net, batch)
        assert phases.forward + phases.backward + phases.optimizer == pytest.approx(1)
        assert 0 < phases.forward < phases.backward
        assert 0 < phases.optimizer <= load(name).phases(net, 1).optimizer

    def test_the_optimizer_takes_the_time_of_its_memory_traffic(self) -> None:
        v100 = load("v100")
        nanoseconds = v100.phases("vgg16", 16).optimizer * v100.step_ns("vgg16", 16)
        assert nanoseconds == pytest.approx(5 * 4 * 138_357_544 / 900, rel=1e-6)


class TestMemory:
    @given(accelerators, net_names, batch_sizes)
    def test_grows_by_the_activations_of_a_sample(self, name: str, net: str, batch: int) -> None:
        needed = load(name).memory_bytes_needed
        assert needed(net, batch + 1) - needed(net, batch) == nets().nets[net].activation_bytes.value

    def test_what_people_ran(self) -> None:
        def fits(name: str, net: str, batch: int) -> bool:
            accelerator = load(name)
            return accelerator.memory_bytes_needed(net, batch) <= accelerator.memory_bytes.value

        # 192 images on the 8 dies of a p2.8xlarge, in the study of SSD on AWS
        assert fits("k80", "ssd512", 24)
        # amdegroot/ssd.pytorch#101
        assert fits("gtx1080", "ssd300", 32)
        # lambdal/lambda-tensorflow-benchmark, 16 GB
        assert fits("v100", "vgg16", 96)
        assert not fits("k520", "ssd300", 32)
        assert not fits("titanx", "ssd512", 32)

    def test_batch_8_of_ssd300_is_near_what_mmdetection_measured_without_autotuning(self) -> None:
        # model zoo of 2018-12, 81 classes: 3.5 GB
        assert load("v100").memory_bytes_needed("ssd300", 8) == pytest.approx(3.5e9, rel=0.2)


class TestSpec:
    def test_an_emulated_device_gets_the_numbers(self) -> None:
        spec = load("a100").spec()
        assert (spec.name, spec.title) == ("a100", "NVIDIA A100 SXM4 40 GB")
        assert spec.memory_bytes == 42_298_834_944
        assert spec.pinned_bytes_per_s == 25.7e9
        assert spec.pageable_bytes_per_s == 10.0e9
        assert spec.copy_latency_ns == 6_500

    @pytest.mark.parametrize("name", ACCELERATORS)
    def test_links_stay_below_what_pcie_gives(self, name: str) -> None:
        link = load(name).link
        lane_gb_per_s = {3: 0.985, 4: 1.969, 5: 3.938}[int(link.generation.value)]
        assert link.pageable_gb_per_s.value < link.pinned_gb_per_s.value < lane_gb_per_s * link.width.value


class TestOwnProfile:
    def own(self, folder: Path, *changes: tuple[str, str], base: str = "titanx") -> str:
        text = raw_text(base)
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new, 1)
        path = folder / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def test_a_recorded_profile_works_by_its_path(self, tmp_path: Path) -> None:
        path = tmp_path / "rtx.toml"
        text = raw_text("titanx").split("[nets.vgg16]")[0].replace('name = "titanx"', 'name = "rtx"')
        path.write_text(
            text + "[nets.ssd300]\nbatch_sizes = [8, 32]\nsamples_per_s = [180.0, 240.0]\n"
            'precision = "tf32"\nrecorded = "my machine, 2026-03-01"\n',
            encoding="utf-8",
        )
        mine = load(str(path))
        assert mine.name == "rtx"
        assert mine.provenance("ssd300") == "recorded: my machine, 2026-03-01"
        assert mine.step_ns("ssd300", 32) == pytest.approx(32 / 240 * 1e9, abs=1)
        with pytest.raises(WhyidleError, match=r"rtx has no net 'vgg16'. It has: ssd300\.$"):
            mine.step_ns("vgg16", 8)

    def test_may_derive_from_a_builtin_and_from_itself(self, tmp_path: Path) -> None:
        path = self.own(tmp_path, ('name = "titanx"', 'name = "mine"'))
        assert load(path).nets["ssd300"].samples_per_s == (40.93,)
        path = self.own(tmp_path, ('name = "titanx"', 'name = "mine"'), ('"titanx/ssd300"', '"mine/ssd300"'))
        assert load(path).nets["ssd512"].samples_per_s == (14.23,)

    def test_unknown_names_list_the_known_ones(self) -> None:
        with pytest.raises(WhyidleError, match=r"unknown accelerator 'rtx9090'.*a100, gtx1080, h100"):
            load("rtx9090")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(WhyidleError, match=r"cannot read .*absent\.toml: No such file"):
            load(str(tmp_path / "absent.toml"))

    @pytest.mark.parametrize("size", [0, -3])
    def test_a_batch_has_samples(self, size: int) -> None:
        with pytest.raises(WhyidleError, match=f"batch size {size}: it must be at least 1"):
            load("v100").step_ns("ssd300", size)
        with pytest.raises(WhyidleError, match="must be at least 1"):
            load("v100").memory_bytes_needed("ssd300", size)

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ('name = "titanx"', "name = titanx", "is not TOML: Invalid value"),
            ('name = "titanx"\n', "", "name: missing"),
            (
                "value = 336.5",
                'value = "fast"',
                "memory.gb_per_s.value: expected a number above 0, found 'fast'",
            ),
            ("value = 336.5", "value = -1", "memory.gb_per_s.value: expected a number above 0, found -1"),
            ("value = 336.5", "value = nan", "memory.gb_per_s.value: expected a number above 0, found nan"),
            ("value = 336.5", "value = true", "memory.gb_per_s.value: expected a number above 0, found True"),
            ("value = 0.3232", "value = 1.5", "forward_share.value: expected a share below 1"),
            (
                "[kernel_us]\nvalue = 3.8\nderived",
                "[kernel_us]\nvalue = 3.8\nnote",
                "kernel_us.source: say where",
            ),
            ("[kernel_us]", '[kernel_us]\nsource = "x"', "kernel_us.derived: say where it is from"),
            ("[kernel_us]", "[kernel_us]\nspeed = 3", "kernel_us.speed: unknown key"),
            ("[kernel_us]", "[kernel_ns]", "kernel_us: missing"),
            ("[nets.ssd512]", "[nets.yolo]", "nets.yolo: unknown net; the nets are ssd300, ssd512, vgg16"),
            (
                "batch_sizes = [16]",
                "batch_sizes = [16, 32]",
                "nets.vgg16.samples_per_s: 1 values for 2 batch sizes",
            ),
            (
                "batch_sizes = [16]",
                "batch_sizes = [-16]",
                "nets.vgg16.batch_sizes: expected a number above 0",
            ),
            (
                "batch_sizes = [16]",
                "batch_sizes = []",
                "nets.vgg16.batch_sizes: expected a list with something in it",
            ),
            (
                "[16]\nsamples_per_s = [83.0]",
                "[16, 32]\nsamples_per_s = [83.0, 200]",
                "cannot take less time",
            ),
            (
                "samples_per_s = [40.93]",
                "samples_per_s = [50.0]",
                "nets.ssd300.samples_per_s: states 50, but",
            ),
            ('from = "titanx/vgg16"', 'from = "b100/vgg16"', "nets.ssd300.from: unknown accelerator 'b100'"),
            ('from = "titanx/vgg16"', 'from = "v100/cifar10"', "nets.ssd300.from: v100 has no net 'cifar10'"),
            (
                'from = "titanx/vgg16"',
                'from = "p100/vgg16"',
                "nets.ssd300.batch_sizes: states 7.8896, but its derivation gives",
            ),
            ('["vgg16", "ssd300"]', '["vgg16"]', "nets.ssd300.factors[0].forward_macs: expected two of"),
        ],
    )
    def test_a_bad_file_gives_one_line_with_file_and_key(
        self, tmp_path: Path, old: str, new: str, message: str
    ) -> None:
        path = self.own(tmp_path, (old, new))
        with pytest.raises(WhyidleError) as caught:
            load(path)
        text = str(caught.value)
        assert message in text
        assert path in text
        assert "\n" not in text


class TestDocumentation:
    page = Path(__file__).parents[3] / "docs" / "accelerators.md"

    @pytest.mark.parametrize("name", [*ACCELERATORS, *PARTIAL])
    def test_the_table_has_the_numbers_of_the_profiles(self, name: str) -> None:
        lines = self.page.read_text(encoding="utf-8").splitlines()
        for net, known in load(name).nets.items():
            (row,) = (line for line in lines if line.startswith(f"| {name} | {net} |"))
            cells = [cell.strip() for cell in row.split("|")]
            for shown, values in ((cells[3], known.batch_sizes), (cells[4], known.samples_per_s)):
                separator = " to " if " to " in shown else ", "
                ends = values if separator == ", " else (values[0], values[-1])
                assert shown == separator.join(f"{round(value, 2):g}" for value in ends)
            assert cells[5] == known.origin.kind

    def test_the_example_of_an_own_profile_loads(self, tmp_path: Path) -> None:
        example = self.page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
        (tmp_path / "mine.toml").write_text(example, encoding="utf-8")
        mine = load(str(tmp_path / "mine.toml"))
        assert mine.step_ns("ssd300", 8) == pytest.approx(8 / 190 * 1e9, abs=1)
        assert mine.provenance("ssd300").startswith("recorded: 200 steps")
        assert mine.provenance("ssd512") == "derived: ratio to mine/ssd300: forward MACs"


def count(name: str) -> dict[str, float]:
    """MACs, parameters, activations kept for backward, and kernels of a net on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        body, *shape = build(name)
        parameters = list(body.parameters())
        # Two at least: batch norm of vectors takes no single sample.
        with torch.no_grad(), FlopCounterMode(display=False) as flops:
            body(torch.empty(2, *shape))
        two, three = (saved_bytes(body, torch.empty(n, *shape)) for n in (2, 3))
        forward, backward = count_kernels(body, torch.empty(2, *shape))
    return {
        "forward_macs": flops.get_total_flops() / 4,
        "parameters": sum(p.numel() for p in parameters),
        "activation_bytes": three - two,
        "forward": forward,
        "backward": backward,
        "optimizer": 0 if name in BENCHMARKS else len(parameters),
    }


def build(name: str) -> tuple[Any, int, int, int]:
    """A net as a module that returns a tensor or a list of them, and the channels, height and width of its input."""
    import torch
    from torchvision.models import vgg16
    from torchvision.models.detection import ssd

    from whyidle.scenarios.convnets import nets as convnet_nets
    from whyidle.scenarios.cost import nets as cost_nets
    from whyidle.scenarios.fashion_mnist import nets as fashion_nets

    if name in PRICED:
        return cost_nets.build(name, 0), *((3, 32, 32) if name == "cifar10-cnn" else (1, 28, 28))
    if name in convnet_nets.NETS:
        side = convnet_nets.INPUT_SIZE[name]
        return convnet_nets.build(name, 10 if name == "cifar10" else convnet_nets.CLASSES), 3, side, side
    if name in FASHION:
        return fashion_nets.build(name.removeprefix("fashion-")), 1, 28, 28
    if name == "vgg16":
        return vgg16(), 3, 224, 224
    size = {"ssd300": 300, "ssd512": 512}[name]
    backbone = ssd._vgg_extractor(vgg16(), highres=size == 512, trainable_layers=5)
    channels = [512, 1024, 512, *[256] * (3 if size == 300 else 4)]
    anchors = [4, 6, 6, 6, 4, 4] if size == 300 else [4, 6, 6, 6, 6, 4, 4]
    head = ssd.SSDHead(channels, anchors, num_classes=21)

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
            return list(self.head(list(self.backbone(images).values())).values())

    return Detector(), 3, size, size


def saved_bytes(body: Any, images: Any) -> int:
    """Storages autograd keeps for the backward pass, parameters aside."""
    import torch

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


def count_kernels(body: Any, images: Any) -> tuple[int, int]:
    """Operators that compute, forward and backward: 2 for a convolution with bias, 3 for its backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Kernels(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operators: Counter[str] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
            name = func.overloadpacket.__name__
            if not is_view and name not in {"detach", "_unsafe_view", "empty_like"}:
                self.operators[name] += {"convolution": 2, "convolution_backward": 3}.get(name, 1)
            return func(*args, **(kwargs or {}))

    with Kernels() as forward:
        outputs = body(images)
    loss = sum(o.sum() for o in (outputs if isinstance(outputs, list | tuple) else [outputs]))
    with Kernels() as backward:
        loss.backward()
    return forward.operators.total(), backward.operators.total()


def test_accelerator_is_immutable() -> None:
    v100: Accelerator = load("v100")
    with pytest.raises(AttributeError):
        v100.name = "other"  # type: ignore[misc]
