"""Entries and fingerprints to fill banks with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from viaduct.tuning.bank import Entry
from viaduct.tuning.fingerprint import Fingerprint
from viaduct.tuning.signature import Signature

HERE = Fingerprint("cpu", "some processor, 2 cores", "AVX2", 2, "", "2.13.0", "")
ELSEWHERE = replace(HERE, torch="2.11.0")


def make_entry(name: str, default_us: float = 100.0, best_us: float = 80.0, **changes: Any) -> Entry:
    """Return an entry of an operator; operators with different names have different signatures."""
    entry = Entry(
        Signature.of("conv2d", x=name), {"layout": "contiguous"}, {"layout": "as_given"}, default_us, best_us, 0.02
    )
    return replace(entry, **changes)
