"""What gradients travel over between emulated devices, and how long that takes: nominal figures, nothing measured."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whyidle.devices.profiles import Accelerator, Figure
from whyidle.errors import WhyidleError

SERVER = "+server"
"""Ends the name of an interconnect over which one parameter server is reached."""
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Interconnect:
    """A link that each device has to the others, as fast in either direction at the same time."""

    name: str
    gb_per_s: Figure
    """One direction; 1e9 bytes."""
    server: bool = False
    """One parameter server beside the first device takes all gradients and gives all parameters, as `dist_sync` of
    MXNet's kvstore with one server; else the devices reduce in a ring, as NCCL and gloo do."""

    def exchange_ns(self, nbytes: int, ranks: int) -> int:
        """Until every device has what all of them computed. Latencies, which are microseconds, are left out.

        In a ring every device sends and receives 2 (n - 1) / n of the bytes. Through the server's one link go the
        gradients of the n - 1 other devices, and then as many times the parameters.
        """
        copies = 2 * (ranks - 1) * (1.0 if self.server else 1 / ranks)
        return round(copies * nbytes / self.gb_per_s.value)

    def describe(self, nbytes: int, ranks: int) -> dict[str, object]:
        """For run.json."""
        return {
            "interconnect": self.name,
            "way": "parameter server" if self.server else "ring",
            "gb_per_s": self.gb_per_s.value,
            "origin": self.gb_per_s.origin,
            "bytes": nbytes,
            "ms": self.exchange_ns(nbytes, ranks) / 1e6,
            "overlap": 0.0,
        }


def _link(name: str, gb_per_s: float, text: str, doubt: str) -> Interconnect:
    return Interconnect(name, Figure(value=gb_per_s, source=text, doubt=doubt))


_LINKS = "Nominal; a ring may not use all of the links."
_SHARED = "Nominal; devices behind one switch or root port share it."
_EFFICIENCY = "Nominal: protocols and copies in the host leave less."
_EC2 = "AWS, GPU & FPGA briefing, March 2017 (speakerdeck.com/porcaro33): network bandwidth in a placement group"

INTERCONNECTS = {
    each.name: each
    for each in (
        _link("pcie2", 8.0, "PCI-SIG: 5 GT/s, 8b/10b, 16 lanes", _SHARED),
        _link("pcie3", 15.754, "PCI-SIG: 8 GT/s, 128b/130b, 16 lanes", _SHARED),
        _link("nvlink1", 80.0, "NVIDIA Tesla P100: 4 links of 20 GB/s per direction", _LINKS),
        _link("nvlink2", 150.0, "NVIDIA Tesla V100: 6 links of 25 GB/s per direction", _LINKS),
        _link("nvlink4", 450.0, "NVIDIA H100: 18 links of 25 GB/s per direction", _LINKS),
        _link("ethernet-1g", 0.125, "IEEE 802.3ab: 1 Gbit/s", _EFFICIENCY),
        _link("ethernet-10g", 1.25, "IEEE 802.3ae: 10 Gbit/s", _EFFICIENCY),
        _link("ec2-p2.xlarge", 0.15625, f"{_EC2}: 1.25 Gbit/s", _EFFICIENCY),
        _link("ec2-p2.8xlarge", 1.25, f"{_EC2}: 10 Gbit/s", _EFFICIENCY),
        _link("ec2-p2.16xlarge", 2.5, f"{_EC2}: 20 Gbit/s", _EFFICIENCY),
    )
}
"""Of g2.2xlarge, which GumGum trained on, AWS published a word ("high") and no figure: name a rate instead."""

_RATE = re.compile(r"(\d+(?:\.\d+)?)(M|G)bit/s")


def named(name: str) -> Interconnect:
    """An interconnect by its name, or by its rate (`940Mbit/s`, `25Gbit/s`); with `+server`, one parameter server.

    Raises:
        WhyidleError: there is none of that name.
    """
    link, server = name.removesuffix(SERVER), name.endswith(SERVER)
    rate = _RATE.fullmatch(link)
    if rate and float(rate[1]) > 0:
        gb_per_s = float(rate[1]) / 8 / (1000 if rate[2] == "M" else 1)
        return Interconnect(name, Figure(value=gb_per_s, recorded="a rate of the user's"), server)
    if link not in INTERCONNECTS:
        raise WhyidleError(
            f"unknown interconnect {name!r}. Choose one of {', '.join(INTERCONNECTS)}, or a rate such as 940Mbit/s; "
            f"{SERVER} after it means one parameter server."
        )
    return Interconnect(name, INTERCONNECTS[link].gb_per_s, server)


def own_link(accelerator: Accelerator) -> Interconnect:
    """The way to the host that the accelerator's profile knows: what devices of one machine have at least."""
    link = accelerator.link
    return Interconnect(f"pcie{link.generation.value:g} x{link.width.value:g} of the profile", link.pinned_gb_per_s)


def gradient_bytes(accelerator: Accelerator, net: str) -> int:
    """What every device has to tell the others in a step: a gradient for each parameter, fp32.

    Raises:
        WhyidleError: the profile does not have the net.
    """
    return int(FLOAT32_BYTES * accelerator.net(net).net.parameters.value)
