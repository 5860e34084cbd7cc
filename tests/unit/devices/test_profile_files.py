"""Files with profiles: every number has an origin, one's own work too, and the page shows what they say."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from support.accelerators import ACCELERATORS, BENCHMARKS, FASHION, NETS, PRICED, SCALED
from whyidle.devices.profiles.load import load, names, nets
from whyidle.errors import WhyidleError

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
