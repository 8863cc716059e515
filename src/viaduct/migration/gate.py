"""Quick test whether a text could hold anything for a rule: most files of a project end here, parsed only.

A name can only be resolved to `tensorflow.X` where the text imports something of that root, and a method rule needs its
method's name. So a text without any of these words has nothing for any rule, and that is seen without names or scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from viaduct.migration.options import Options
from viaduct.migration.project import FRAMEWORKS
from viaduct.migration.rule import Rule, all_rules

COMMON = ("os",)
"""Roots that every other file imports: here the last part of the name decides."""


@dataclass(frozen=True)
class Gate:
    """Texts of which a file must hold one: words, or calls of methods."""

    words: tuple[str, ...]
    methods: re.Pattern[str] | None

    def lets_through(self, text: str) -> bool:
        """Return True if a text holds one of the words or methods; a search for each word is faster than one regex."""
        if any(fragment in text for fragment in self.words):
            return True
        return self.methods is not None and self.methods.search(text) is not None


def may_concern(text: str, options: Options) -> bool:
    """Return True if a rule could have something to do in a text."""
    gate = gate_for(options)
    return gate is None or gate.lets_through(text)


@lru_cache(maxsize=16)
def gate_for(options: Options) -> Gate | None:
    """Return what the rules that are wanted look for; None if one of them looks at every file."""
    rules = [rule for rule in all_rules() if rule.is_wanted(options)]
    if any((rule.nodes or rule.whole) and not rule.words for rule in rules):
        return None
    words = {name.decode() for name in FRAMEWORKS} | {text for rule in rules for text in words_of(rule)}
    shortest = sorted(
        fragment for fragment in words if not any(other in fragment for other in words if other != fragment)
    )
    methods = "|".join(sorted({re.escape(method) for rule in rules for method in rule.methods}))
    return Gate(tuple(shortest), re.compile(rf"\.\s*(?:{methods})\b") if methods else None)


def words_of(rule: Rule) -> Iterator[str]:
    """Yield the words one of which a text needs for a rule's calls, references and nodes."""
    yield from rule.words
    for name in (*rule.calls, *rule.references):
        root, _, remainder = name.partition(".")
        last = remainder.rpartition(".")[2]
        yield last if root in COMMON and last not in ("", "*") else root
