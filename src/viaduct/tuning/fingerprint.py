"""Fingerprint of device and software. Each file of the tuning bank belongs to one fingerprint."""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass
from functools import cache

from viaduct.devices.hardware import find_package_version


@dataclass(frozen=True)
class Fingerprint:
    """Facts about device and software that affect which variant of an operator is fastest; "" or 0: not applicable."""

    device: str  # cpu, cuda …
    name: str  # of the processor or card
    capability: str  # of a CUDA device: 9.0; of a CPU its vector instructions: AVX512
    threads: int  # of the CPU
    driver: str
    torch: str
    triton: str

    @property
    def file_name(self) -> str:
        """Name of the bank's file: readable, with a checksum of all fields."""
        readable = re.sub(r"[^a-z0-9.]+", "-", f"{self.name} torch {self.torch}".lower()).strip("-.")
        checksum = zlib.crc32(repr(asdict(self)).encode())
        return f"{self.device}_{readable[:80]}_{checksum:08x}.json"

    def describe(self) -> str:
        threads = f"{self.threads} threads" if self.threads > 1 else "1 thread"
        driver = f"driver {self.driver}" if self.driver else ""
        triton = f"triton {self.triton}" if self.triton else ""
        parts = [self.name, self.capability, threads if self.threads else "", f"torch {self.torch}", driver, triton]
        return f"{self.device}: {', '.join(filter(None, parts))}"

    def list_differences(self, stored: Fingerprint) -> list[str]:
        """Return the fields that differ from a stored fingerprint, as texts such as "torch 2.11.0, here 2.13.0"."""
        values, stored_values = asdict(self), asdict(stored)
        names = [name for name in values if values[name] != stored_values[name]]
        return [f"{name} {stored_values[name] or 'none'}, here {values[name] or 'none'}" for name in names]


@cache
def read_fingerprint(device: str) -> Fingerprint:
    """Return the fingerprint of a device of this machine (`cpu`, `cuda`…).

    The result is cached. So it has the thread count of the first call, before a bank's choices were applied.
    """
    import torch

    from viaduct import devices

    measured_device = devices.get(device)
    versions = measured_device.get_versions()
    if device == "cpu":
        capability, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    else:
        capability = ".".join(map(str, torch.cuda.get_device_capability())) if device == "cuda" else ""
        threads = 0
    return Fingerprint(
        device=device,
        name=measured_device.describe_card(),
        capability=capability,
        threads=threads,
        driver=versions.get("driver", ""),
        torch=versions.get("torch", torch.__version__),
        triton="" if device == "cpu" else find_package_version("triton") or "",
    )
