"""Tones: colours of a result on a page, each with a sign for readers who do not see the colour."""

from __future__ import annotations

from typing import Literal, get_args

Tone = Literal["good", "bad", "warn", "new", "muted"]  # new: neither good nor bad, but to be noticed

TONES: tuple[Tone, ...] = get_args(Tone)
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "warn": "!", "new": "∗", "muted": "–"}
