"""Find files that no rule can match, by a search in their text. They are parsed, but their names are not resolved.

A name can be resolved to `tensorflow.X` only if the text contains `tensorflow`, or if another file of the project
re-exports it; for the latter, `migrate_bytes` asks the survey. A rule for calls of a method needs the method's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from viaduct.migration.frameworks import FRAMEWORKS
from viaduct.migration.options import Options
from viaduct.migration.rule import Rule, all_rules

COMMON_ROOTS = ("os",)
"""Top-level modules that most files import. The text is searched for the last part of their names: `environ`."""


def may_match_rule(text: str, options: Options) -> bool:
    """Return False for a text in which no rule can find anything."""
    substrings, method_calls = collect_search_terms(options)
    return any(part in text for part in substrings) or (method_calls is not None and bool(method_calls.search(text)))


@lru_cache(maxsize=16)
def collect_search_terms(options: Options) -> tuple[list[str], re.Pattern[str] | None]:
    """Return substrings and a pattern of method calls. No enabled rule can match a text that has none of them.

    Searching for each substring is faster than one regex for all. If a rule visits every file, the substring is "".
    """
    rules = [rule for rule in all_rules() if rule.is_wanted(options)]
    if any((rule.node_handlers or rule.file_handlers) and not rule.only_if_file_contains for rule in rules):
        return [""], None
    substrings = {*FRAMEWORKS, *(part for rule in rules for part in list_substrings(rule))}
    shortest = sorted(text for text in substrings if not any(part in text for part in substrings - {text}))
    methods = "|".join(sorted({re.escape(method) for rule in rules for method in rule.method_handlers}))
    return shortest, re.compile(rf"\.\s*(?:{methods})\b") if methods else None


def list_substrings(rule: Rule) -> Iterator[str]:
    """Yield substrings of which a text has at least one if a call, reference, node or file handler of the rule runs."""
    yield from rule.only_if_file_contains
    for name in (*rule.call_handlers, *rule.reference_handlers):
        root, _, remainder = name.partition(".")
        last = remainder.rpartition(".")[2]
        yield last if root in COMMON_ROOTS and last not in ("", "*") else root
