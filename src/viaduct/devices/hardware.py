"""Cards, drivers and vendor software, found without torch in files of the operating system and of the vendors.

    nvidia_driver(), ascend_driver(), cann(), cambricon_driver(), cntoolkit()     versions, or None
    describe_old_driver("mlu", "4.15.3")                                          what is wrong with a driver, or None
    list_without_torch()                                                          every device, where torch is missing

Importing this module does not import torch.
"""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

from viaduct.cards import CUDA, MLU, NPU
from viaduct.devices.base import Facts, find_in_file, select_known
from viaduct.devices.fitting import find_fit
from viaduct.extras import install_line

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
ASCEND_DRIVER = Path("/usr/local/Ascend/driver/version.info")
CANN_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
CANN_FOLDERS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
CAMBRICON_DRIVERS = Path("/proc/driver/cambricon/mlus")
CNTOOLKIT = "/usr/local/neuware"
OLDEST_DRIVERS = {"mlu": "4.20.6"}
"""Oldest driver with which a vendor trains its own ResNet-50; torch itself refuses an NVIDIA driver that is too old."""
INSTALL_LINE = "pip install 'viaduct[train]'"
DEV = Path("/dev")
CARD_FILES = {card.name: card.device_files for card in (CUDA, NPU, MLU)}


def nvidia_driver() -> str | None:
    return find_in_file(NVIDIA_DRIVER, r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


def ascend_driver() -> str | None:
    return find_in_file(ASCEND_DRIVER, r"^version=(.+)$")


def cann() -> str | None:
    """Return the version of Ascend's toolkit."""
    folders = (*filter(None, map(os.environ.get, CANN_VARIABLES)), *CANN_FOLDERS)
    notes = (Path(folder, f"{platform.machine()}-linux", "ascend_toolkit_install.info") for folder in folders)
    return next(filter(None, (find_in_file(note, r"^version=(.+)$") for note in notes)), None)


def cambricon_driver() -> str | None:
    notes = sorted(CAMBRICON_DRIVERS.glob("*/information"))
    return next(filter(None, (find_in_file(note, r"^driver version\s*:\s*v?(.+)$") for note in notes)), None)


def cntoolkit() -> str | None:
    """Return the version of Cambricon's toolkit."""
    folder = os.environ.get("NEUWARE_HOME", CNTOOLKIT)
    return find_in_file(Path(folder, "version.txt"), r"(\d+\.\d+\.\d+)")


def describe_old_driver(name: str, version: str | None) -> str | None:
    """Return two lines, what is wrong with a device's driver and what to do; None if nothing is known to be wrong.

    A driver is wrong if it is older than OLDEST_DRIVERS, or if its version is unknown though the machine has cards.
    """
    oldest = OLDEST_DRIVERS.get(name)
    if oldest is None or (version is None and not count_cards(name)):
        return None
    numbers = read_version(version or "")
    if not numbers:
        found = f"version {version!r}" if version else f"nothing under {CAMBRICON_DRIVERS}"
        return f"{name}: the driver's version is not known ({found}).\nMake sure that it is {oldest} or newer."
    if numbers >= read_version(oldest):
        return None
    return (
        f"{name}: driver {version} is older than {oldest}, the oldest that the vendor trains with.\nUpdate the driver."
    )


def read_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: (4, 20, 6) of `v4.20.6-1`; () if it does not begin with a number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def list_without_torch() -> list[Facts]:
    """Return the facts about each device on a machine without torch, where none of them can be used."""
    versions: dict[str, dict[str, str | None]] = {
        "cpu": {"python": platform.python_version()},
        "cuda": {"driver": nvidia_driver()},
        "mlu": {MLU.module: package_version(MLU.module), "cntoolkit": cntoolkit(), "driver": cambricon_driver()},
        "npu": {NPU.module: package_version(NPU.module), "cann": cann(), "driver": ascend_driver()},
    }
    return [Facts(name, False, select_known(found), missing=describe_missing(name)) for name, found in versions.items()]


def describe_missing(name: str) -> str:
    """Return what is missing for a device and how to get it; the cards that the kernel shows are named."""
    cards = count_cards(name)
    seen = f"; the kernel shows {cards} card{'s' * (cards > 1)}" if cards else ""
    if name == "cpu":
        return f"the CPU is there, but torch is not installed\n{install_line('torch')}"
    if name == "cuda":
        return f"torch is not installed{seen}\n{INSTALL_LINE}"
    plugin = f"torch_{name}"
    if fit := find_fit(plugin, torch=""):
        needed = f"Install torch=={fit.built_for}, which {plugin} {fit.version} is built for, then: {INSTALL_LINE}"
        return f"torch is not installed{seen}\n{needed}"
    absent = "torch is" if package_version(plugin) else f"torch and {plugin} are"
    return f"{absent} not installed{seen}\nInstall the vendor's torch and {plugin}, then: {INSTALL_LINE}"


def count_cards(name: str) -> int:
    """Return the number of device files of a vendor's cards."""
    return len(list(DEV.glob(CARD_FILES[name]))) if name in CARD_FILES else 0


def package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
