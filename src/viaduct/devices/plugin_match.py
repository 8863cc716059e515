"""The torch release that an installed vendor plug-in was built for, read from its metadata without importing it.

A plug-in is C++ code compiled for one minor release of torch. With another one it fails to load, or ends the process.

    torch_npu 2.5.1.post1         built for torch 2.5.1, the first three numbers of its version
    torch_mlu 1.24.1+torch2.5.0   built for torch 2.5.0, which its version names

If the metadata require a release, such as `Requires-Dist: torch==2.5.1`, that release counts instead of the version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

from viaduct.cards import NPU, PLUGINS

OLDEST_TORCH = (2, 4)  # the oldest release that viaduct trains with


@dataclass(frozen=True)
class PluginMatch:
    """Versions of an installed plug-in, of the torch release that it was built for, and of the installed torch."""

    package: str
    version: str
    built_for: str
    torch: str

    @property
    def is_exact(self) -> bool:
        """True if the installed torch is the release that the plug-in was built for; 2.5 stands for every 2.5.x."""
        expected = parse_release(self.built_for)
        return parse_release(self.torch)[: len(expected)] == expected

    @property
    def is_loadable(self) -> bool:
        """True if the plug-in was built for the minor release of the installed torch.

        Within a minor release the C++ interface of torch mostly stays the same.
        """
        return parse_release(self.torch)[:2] == parse_release(self.built_for)[:2]

    def __str__(self) -> str:
        return f"{self.package} {self.version} is built for torch {self.built_for}, but this is torch {self.torch}"

    @property
    def hint(self) -> str:
        """Advice on what to install."""
        plugin_for_this = f"the {self.package} built for torch {strip_local(self.torch)}"
        if parse_release(self.built_for)[:2] < OLDEST_TORCH:
            oldest = ".".join(map(str, OLDEST_TORCH))
            return f"Install {plugin_for_this}; viaduct trains with torch {oldest} or later."
        return f"Install torch=={self.built_for}, or {plugin_for_this}."


def match_plugin(package: str, torch: str) -> PluginMatch | None:
    """Compare an installed plug-in with a torch version; None if it is not installed or names no torch release."""
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    version = (distribution.metadata.get_all("Version") or [""])[0]
    built_for = find_pinned_torch(distribution.requires or []) or find_torch_in_version(package, version)
    return PluginMatch(package, version, built_for, torch) if built_for else None


def find_mismatched_plugins(torch: str) -> list[PluginMatch]:
    """Return the installed plug-ins that were built for another release of torch."""
    matches = (match_plugin(package, torch) for package in PLUGINS)
    return [match for match in matches if match is not None and not match.is_exact]


def find_pinned_torch(requirements: list[str]) -> str | None:
    """Return the release of torch that a requirement pins, or None.

    It is X.Y.Z of `torch==X.Y.Z`, `torch (==X.Y.Z)` or `torch==X.Y.Z+cpu`.
    """
    for requirement in requirements:
        pinned = re.match(r"torch\s*\(?\s*={2,3}\s*(\d+(?:\.\d+)+)", requirement.strip(), re.IGNORECASE)
        if pinned:
            return pinned[1]
    return None


def find_torch_in_version(package: str, version: str) -> str | None:
    """Return the torch release that the plug-in's own version names, or None."""
    if package == NPU.plugin:
        match = re.match(r"\d+\.\d+\.\d+", version)
        return match[0] if match else None
    match = re.search(r"[-+.]torch(\d+(?:\.\d+)+)", version)
    return match[1] if match else None


def parse_release(version: str) -> tuple[int, ...]:
    """Return (2, 5, 1), the release numbers of 2.5.1, v2.5.1-1, 2.5.1+cpu or 2.5.1.post3; () if it has no number."""
    return tuple(int(number) for number in re.findall(r"\d+", strip_local(version))[:3])


def strip_local(version: str) -> str:
    """Return the version without its local part: 2.5.1 of 2.5.1+cpu."""
    return version.partition("+")[0]
