"""Whether a text could hold anything for a rule: most files of a project end here, parsed but not looked into.

A name can only be resolved to `tensorflow.X` where the text imports something of that root, and a method rule needs its
method's name. So a text without any of these words has nothing for any rule, and that is seen without names or scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from viaduct.migration.options import Options
from viaduct.migration.project import FRAMEWORKS
from viaduct.migration.rule import Rule, all_rules

COMMON = ("os",)
"""Roots that every other file imports: here the last part of the name decides."""


def may_concern(text: str, options: Options) -> bool:
    gate = gate_for(options)
    return gate is None or gate.search(text) is not None


@lru_cache(maxsize=16)
def gate_for(options: Options) -> re.Pattern[str] | None:
    """None: some rule looks at every file."""
    words: set[str] = {re.escape(word.decode()) for word in FRAMEWORKS}
    for rule in all_rules():
        if rule.wanted(options):
            if (rule.nodes or rule.whole) and not rule.words:
                return None
            words |= set(words_of(rule))
    return re.compile("|".join(sorted(words)))


def words_of(rule: Rule) -> Iterator[str]:
    yield from (re.escape(word) for word in rule.words)
    yield from (rf"\.\s*{re.escape(method)}\b" for method in rule.methods)
    for name in (*rule.calls, *rule.references):
        root, _, rest = name.partition(".")
        last = rest.rpartition(".")[2]
        yield re.escape(last if root in COMMON and last not in ("", "*") else root)
