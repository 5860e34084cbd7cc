"""Accelerator profiles: the models of time and memory behave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.accelerators import ACCELERATORS, NETS, PRICED
from whyidle.devices.profiles import Accelerator
from whyidle.devices.profiles.load import load, nets

WINOGRAD = 2.25
"""F(2x2, 3x3) needs this much less than the MACs counted, so fp32 may seem to exceed its peak by it."""

accelerators = st.sampled_from(ACCELERATORS)
net_names = st.sampled_from(NETS)
batch_sizes = st.integers(1, 512)


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


def test_accelerator_is_immutable() -> None:
    v100: Accelerator = load("v100")
    with pytest.raises(AttributeError):
        v100.name = "other"  # type: ignore[misc]
