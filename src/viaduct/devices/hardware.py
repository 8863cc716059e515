"""Find cards, drivers and vendor software in files of the operating system and of the vendors, without torch.

    find_ascend_driver()                    "25.2.0", or None
    describe_old_driver("mlu", "4.15.3")    what is wrong with a driver, or None
    collect_facts_without_torch()           the facts about every device, if torch is not installed

Importing this module does not import torch.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from viaduct.cards import CUDA, MLU, NPU
from viaduct.devices.base import DeviceFacts, find_in_file, select_known
from viaduct.devices.plugin_match import match_plugin, parse_release
from viaduct.extras import install_line

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
ASCEND_DRIVER = Path("/usr/local/Ascend/driver/version.info")
CANN_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
CANN_FOLDERS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
CAMBRICON_DRIVERS = Path("/proc/driver/cambricon/mlus")
CNTOOLKIT = "/usr/local/neuware"
# The oldest driver with which a vendor trains its own ResNet-50. torch itself refuses an old NVIDIA driver.
OLDEST_DRIVERS = {"mlu": "4.20.6"}
INSTALL_LINE = "pip install 'viaduct[train]'"
DEV = Path("/dev")
CARD_FILES = {card.name: card.device_files for card in (CUDA, NPU, MLU)}  # patterns under /dev


def find_nvidia_driver() -> str | None:
    return find_in_file(NVIDIA_DRIVER, r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


def find_ascend_driver() -> str | None:
    return find_in_file(ASCEND_DRIVER, r"^version=(.+)$")


def find_cann() -> str | None:
    """Return the version of Ascend's toolkit."""
    folders = (*filter(None, map(os.environ.get, CANN_VARIABLES)), *CANN_FOLDERS)
    files = (Path(folder, f"{platform.machine()}-linux", "ascend_toolkit_install.info") for folder in folders)
    return next(filter(None, (find_in_file(file, r"^version=(.+)$") for file in files)), None)


def find_cambricon_driver() -> str | None:
    files = sorted(CAMBRICON_DRIVERS.glob("*/information"))
    return next(filter(None, (find_in_file(file, r"^driver version\s*:\s*v?(.+)$") for file in files)), None)


def find_cntoolkit() -> str | None:
    """Return the version of Cambricon's toolkit."""
    folder = os.environ.get("NEUWARE_HOME", CNTOOLKIT)
    return find_in_file(Path(folder, "version.txt"), r"(\d+\.\d+\.\d+)")


def describe_old_driver(name: str, version: str | None) -> str | None:
    """Return two lines, the problem and what to do, if a driver is too old or its version is not known; else None.

    An unknown version is no problem on a machine without such a card.
    """
    oldest = OLDEST_DRIVERS.get(name)
    if oldest is None or (version is None and not count_cards(name)):
        return None
    numbers = parse_release(version or "")
    if not numbers:
        detail = f"version {version!r}" if version else f"nothing under {CAMBRICON_DRIVERS}"
        return f"{name}: the driver's version is not known ({detail}).\nMake sure that it is {oldest} or newer."
    if numbers >= parse_release(oldest):
        return None
    return (
        f"{name}: driver {version} is older than {oldest}, the oldest that the vendor trains with.\nUpdate the driver."
    )


def collect_facts_without_torch() -> list[DeviceFacts]:
    """Return the facts about every device if torch is not installed: none can be used then."""
    software: dict[str, dict[str, str | None]] = {
        "cpu": {"python": platform.python_version()},
        "cuda": {"driver": find_nvidia_driver()},
        "mlu": {
            MLU.plugin: find_package_version(MLU.plugin),
            "cntoolkit": find_cntoolkit(),
            "driver": find_cambricon_driver(),
        },
        "npu": {NPU.plugin: find_package_version(NPU.plugin), "cann": find_cann(), "driver": find_ascend_driver()},
    }
    return [
        DeviceFacts(name, False, select_known(versions), missing=describe_missing(name))
        for name, versions in software.items()
    ]


def describe_missing(name: str) -> str:
    """Return two lines for a machine without torch: what is not installed and how many cards there are; what to do."""
    cards = count_cards(name)
    seen = f"; the system shows {cards} card{'s' * (cards > 1)}" if cards else ""
    if name == "cpu":
        return f"the CPU is there, but torch is not installed\n{install_line('torch')}"
    if name == "cuda":
        return f"torch is not installed{seen}\n{INSTALL_LINE}"
    plugin = f"torch_{name}"
    if match := match_plugin(plugin, torch=""):
        release = f"torch=={match.built_for}, which {plugin} {match.version} is built for"
        return f"torch is not installed{seen}\nInstall {release}, then: {INSTALL_LINE}"
    absent = "torch is" if find_package_version(plugin) else f"torch and {plugin} are"
    return f"{absent} not installed{seen}\nInstall the vendor's torch and {plugin}, then: {INSTALL_LINE}"


def count_cards(name: str) -> int:
    """Return the number of device files of a vendor's cards."""
    return len(list(DEV.glob(CARD_FILES[name]))) if name in CARD_FILES else 0


def find_package_version(package: str) -> str | None:
    """Return the version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
