"""Fingerprint of device and software: a tuning bank's entries are used only under the one they were measured under."""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

from viaduct.devices.hardware import find_package_version


@dataclass(frozen=True)
class Fingerprint:
    """Facts besides the operator that decide which of its variants is fastest; "" or 0 where one does not apply."""

    device: str  # cpu, cuda …
    name: str
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
        """Return the fingerprint in one line."""
        threads = f"{self.threads} threads" if self.threads > 1 else "1 thread"
        parts = [self.name, self.capability, threads if self.threads else "", f"torch {self.torch}"]
        parts += [f"driver {self.driver}"] * bool(self.driver) + [f"triton {self.triton}"] * bool(self.triton)
        return f"{self.device}: {', '.join(filter(None, parts))}"

    def list_differences(self, other: Fingerprint) -> list[str]:
        """Return the fields that differ from another fingerprint: `torch 2.11.0, here 2.13.0`; `here` is this one."""
        here, there = asdict(self), asdict(other)
        names = [name for name in here if here[name] != there[name]]
        return [f"{name} {there[name] or 'none'}, here {here[name] or 'none'}" for name in names]


def decode_fingerprint(record: Any) -> Fingerprint:
    """Return the fingerprint in a bank's file; raise ValueError with the field that is wrong."""
    if not isinstance(record, dict):
        raise ValueError("its fingerprint is not an object")
    values: dict[str, Any] = {}
    for field in fields(Fingerprint):
        value = record.get(field.name)
        kind = int if field.name == "threads" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"fingerprint.{field.name} is {value!r:.60}")
        values[field.name] = value
    return Fingerprint(**values)


@cache
def read_fingerprint(device: str) -> Fingerprint:
    """Return the fingerprint of a device of this machine (`cpu`, `cuda`…).

    The result of the first call is kept: its thread count is the one from before choices of a bank were applied.
    """
    import torch

    from viaduct import devices

    here = devices.get(device)
    versions = here.get_versions()
    if device == "cpu":
        capability, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    else:
        capability = ".".join(map(str, torch.cuda.get_device_capability())) if device == "cuda" else ""
        threads = 0
    return Fingerprint(
        device=device,
        name=here.describe_card(),
        capability=capability,
        threads=threads,
        driver=versions.get("driver", ""),
        torch=versions.get("torch", torch.__version__),
        triton="" if device == "cpu" else find_package_version("triton") or "",
    )
