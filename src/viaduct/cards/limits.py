"""Documented limits of the accelerators, with all sentences about each, in English and Chinese.

The texts are in limits.json. `viaduct rehearse`, which runs a migrated script on the CPU in place of the accelerator,
enforces the limits (`rehearsal/limits.py`). The table of docs/rehearse.md is generated from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Literal

from viaduct.cards import MLU, NPU

Bilingual = tuple[str, str]  # a text in English and in Chinese
LimitFramework = Literal["torch", "tf1", "both"]  # framework of the scripts for which a rehearsal enforces a limit
Risk = Literal["high", "medium", "low"]  # risk that a script fails or computes something else if it is not changed
SAME: Bilingual = ("", "")


@dataclass(frozen=True)
class Case:
    """One way to go beyond a limit that has several; SAME stands for the limit's own text."""

    action: Bilingual = SAME
    behaviour: Bilingual = SAME
    remedy: Bilingual = SAME


@dataclass(frozen=True)
class Limit:
    """One documented limit.

    `action`, `behaviour` and `remedy` are the sentences of a violation. Their {fields} are filled in when the violation
    is reported (`rehearsal/limits.py`); {title} is the name of the card in a sentence: NPU.
    """

    framework: LimitFramework
    reason: Bilingual  # why the card has this limit
    action: Bilingual  # what the script does
    behaviour: Bilingual  # what the card does then
    remedy: Bilingual  # what to write instead
    cases: Mapping[str, Case] = field(default_factory=dict)

    def choose_sentences(self, case: str, is_chinese: bool) -> tuple[str, str, str]:
        """Return action, behaviour and remedy in one language; `case` is a key of `cases`, or "" if none applies."""
        own = self.cases[case] if case else Case()
        texts = ((own.action, self.action), (own.behaviour, self.behaviour), (own.remedy, self.remedy))
        action, behaviour, remedy = ((first if first != SAME else general)[is_chinese] for first, general in texts)
        return action, behaviour, remedy


_CATALOGUE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_NAMES = {"NPU_DEVICES_VARIABLE": NPU.visible_variable, "NPU_BACKEND": NPU.backend, "MLU_BACKEND": MLU.backend}


def _read_text(texts: str | list[str], sentences: Mapping[str, Bilingual]) -> Bilingual:
    """Return the text of an entry, a pair of texts or the "$NAME" of a sentence; each $NAME is replaced."""
    english, chinese = (texts, texts) if isinstance(texts, str) else texts
    values, values_zh = ({**_NAMES, **{name: pair[index] for name, pair in sentences.items()}} for index in (0, 1))
    return Template(english).substitute(values), Template(chinese).substitute(values_zh)


def _read_limit(entry: Mapping[str, Any]) -> Limit:
    texts = {name: _read_text(entry[name], SENTENCES) for name in ("reason", "action", "behaviour", "remedy")}
    cases = {
        case: Case(**{name: _read_text(text, SENTENCES) for name, text in own.items()})
        for case, own in entry.get("cases", {}).items()
    }
    return Limit(entry["framework"], **texts, cases=cases)


# Sentences that several limits contain, or that `viaduct migrate` and other commands state too.
SENTENCES: dict[str, Bilingual] = {name: _read_text(texts, {}) for name, texts in _CATALOGUE["sentences"].items()}
ASCENDING_DEVICES = SENTENCES["ASCENDING_DEVICES"]
CAPABILITY_IS_NONE = SENTENCES["CAPABILITY_IS_NONE"]
REMAPPING_FUSES = SENTENCES["REMAPPING_FUSES"]
# Limits by their names in a rehearsal's findings: those of TensorFlow 1 alone are the last.
LIMITS: dict[str, Limit] = {name: _read_limit(entry) for name, entry in _CATALOGUE["limits"].items()}
