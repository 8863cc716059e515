"""Access to the parts of the page of a profile."""

from __future__ import annotations

from typing import Any

from viaduct.profiling.record import Profile
from viaduct.profiling.report import build_page


def build_sections(profile: Profile) -> dict[str, Any]:
    return {section.title: section for section in build_page(profile).sections}


def find_parts(profile: Profile, title: str, kind: type) -> list[Any]:
    return [part for part in build_sections(profile)[title].parts if isinstance(part, kind)]


def read_tiles(profile: Profile) -> dict[str, str]:
    return {tile.label: tile.value for tile in build_page(profile).tiles}
