"""The result of a page, above its evidence: a headline, reasons, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from viaduct.reporting.links import Link
from viaduct.reporting.tones import Tone


@dataclass(frozen=True)
class Remark:
    """A named paragraph under the headline: `Likely cause`, `What to try`."""

    name: str
    text: str


@dataclass(frozen=True)
class Callout:
    """A headline in the colour of its tone, then remarks grouped by name, then links."""

    template: ClassVar[str] = "callout.html"

    tone: Tone
    headline: str
    remarks: Sequence[Remark] = ()
    links: Sequence[Link] = ()

    @property
    def texts_by_name(self) -> dict[str, list[str]]:
        """Return the texts of the remarks under each name, in order."""
        texts: dict[str, list[str]] = {}
        for remark in self.remarks:
            texts.setdefault(remark.name, []).append(remark.text)
        return texts
