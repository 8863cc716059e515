"""The few moods a thing on a page can be in, each with a sign, since a colour alone reaches not every eye."""

from __future__ import annotations

from typing import Literal, get_args

Tone = Literal["good", "bad", "warn", "new", "muted"]

TONES: tuple[Tone, ...] = get_args(Tone)
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "warn": "!", "new": "∗", "muted": "–"}
