"""Find cards, drivers and vendor software in files of the operating system and of the vendors, without torch.

    find_version(NPU.driver_version)        "25.2.0", or None
    describe_old_driver("mlu", "4.15.3")    what is wrong with a driver, or None
    collect_facts_without_torch()           the facts about every device, if torch is not installed

Importing this module does not import torch.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from viaduct.cards import CARDS, CUDA, Card
from viaduct.cards.card import VersionFile
from viaduct.devices import names
from viaduct.devices.base import DeviceFacts, find_in_file, select_known
from viaduct.devices.plugin_match import match_plugin, parse_release
from viaduct.extras import install_line

CARDS_BY_NAME = {card.name: card for card in (CUDA, *CARDS.values())}
ROOT = Path("/")  # root of the file system
INSTALL_LINE = "pip install 'viaduct[train]'"


def find_version(place: VersionFile | None) -> str | None:
    """Return the version of a driver or toolkit, from the first file that has it; None if no file has."""
    if place is None:
        return None
    path = place.path.format(machine=platform.machine())
    named_folders = [os.environ[variable] for variable in place.variables if os.environ.get(variable)]
    for folder in (*named_folders, *place.folders):
        for file in sorted((ROOT / folder.lstrip("/")).glob(path)):
            if version := find_in_file(file, place.pattern):
                return version
    return None


def find_software_versions(card: Card) -> dict[str, str | None]:
    """Return the versions of a card's toolkit, if the plug-in needs one, and of its driver; None for one not found."""
    toolkit = {card.software.lower(): find_version(card.toolkit_version)} if card.toolkit_version else {}
    return {**toolkit, "driver": find_version(card.driver_version)}


def describe_old_driver(name: str, version: str | None) -> str | None:
    """Return two lines, the problem and what to do, if a driver is too old or its version is not known; else None.

    An unknown version is no problem on a machine without such a card. torch itself refuses an old NVIDIA driver.
    """
    card = CARDS_BY_NAME.get(name)
    if card is None or not card.oldest_driver or (version is None and not count_cards(name)):
        return None
    numbers = parse_release(version or "")
    if not numbers:
        assert card.driver_version is not None
        detail = f"version {version!r}" if version else f"nothing in /{card.driver_version.path}"
        problem = f"{name}: the driver's version is not known ({detail})."
        return f"{problem}\nMake sure that it is {card.oldest_driver} or newer."
    if numbers >= parse_release(card.oldest_driver):
        return None
    return (
        f"{name}: driver {version} is older than {card.oldest_driver}, the oldest that the vendor trains with.\n"
        "Update the driver."
    )


def collect_facts_without_torch() -> list[DeviceFacts]:
    """Return the facts about every device if torch is not installed: none can be used then."""
    facts = []
    for name in names():
        versions: dict[str, str | None] = {"python": platform.python_version()} if name == "cpu" else {}
        if card := CARDS_BY_NAME.get(name):
            plugin = {card.plugin: find_package_version(card.plugin)} if card.plugin else {}
            versions = {**plugin, **find_software_versions(card)}
        facts.append(DeviceFacts(name, False, select_known(versions), missing=describe_missing(name)))
    return facts


def describe_missing(name: str) -> str:
    """Return two lines for a machine without torch: what is not installed and how many cards there are; what to do."""
    cards = count_cards(name)
    seen = f"; the system shows {cards} card{'s' * (cards > 1)}" if cards else ""
    if name == "cpu":
        return f"the CPU is there, but torch is not installed\n{install_line('torch')}"
    plugin = CARDS_BY_NAME[name].plugin
    if not plugin:
        return f"torch is not installed{seen}\n{INSTALL_LINE}"
    if match := match_plugin(plugin, torch=""):
        release = f"torch=={match.built_for}, which {plugin} {match.version} is built for"
        return f"torch is not installed{seen}\nInstall {release}, then: {INSTALL_LINE}"
    absent = "torch is" if find_package_version(plugin) else f"torch and {plugin} are"
    return f"{absent} not installed{seen}\nInstall the vendor's torch and {plugin}, then: {INSTALL_LINE}"


def count_cards(name: str) -> int:
    """Return the number of device files of a vendor's cards."""
    card = CARDS_BY_NAME.get(name)
    return len(list((ROOT / "dev").glob(card.device_files))) if card else 0


def find_package_version(package: str) -> str | None:
    """Return the version of a package, without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
