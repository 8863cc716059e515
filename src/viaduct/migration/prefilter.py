"""Quick test that excludes texts on which no rule can have an effect; they are parsed, but names are not resolved.

A name can be resolved to `tensorflow.X` only if the text contains `tensorflow`, and a method rule needs its method's
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from viaduct.migration.frameworks import FRAMEWORKS
from viaduct.migration.options import Options
from viaduct.migration.rule import Rule, all_rules

COMMON_ROOTS = ("os",)
"""Top-level modules that most files import; of names in them the last part is searched: `environ` of os.environ."""


def may_match_rule(text: str, options: Options) -> bool:
    """Return False for a text in which no rule can find anything."""
    terms, methods = search_terms(options)
    return any(term in text for term in terms) or (methods is not None and methods.search(text) is not None)


@lru_cache(maxsize=16)
def search_terms(options: Options) -> tuple[list[str], re.Pattern[str] | None]:
    """Return terms and a pattern of method calls; a text with none of them cannot match an enabled rule.

    Searching for each term is faster than one regex for all. If a rule visits every file, the only term is "".
    """
    rules = [rule for rule in all_rules() if rule.is_wanted(options)]
    if any((rule.node_handlers or rule.file_handlers) and not rule.only_if_file_contains for rule in rules):
        return [""], None
    terms = {*FRAMEWORKS, *(term for rule in rules for term in list_terms(rule))}
    shortest = sorted(term for term in terms if not any(part in term for part in terms - {term}))
    methods = "|".join(sorted({re.escape(method) for rule in rules for method in rule.method_handlers}))
    return shortest, re.compile(rf"\.\s*(?:{methods})\b") if methods else None


def list_terms(rule: Rule) -> Iterator[str]:
    """Yield the terms for a rule's calls, references and nodes."""
    yield from rule.only_if_file_contains
    for name in (*rule.call_handlers, *rule.reference_handlers):
        root, _, remainder = name.partition(".")
        last = remainder.rpartition(".")[2]
        yield last if root in COMMON_ROOTS and last not in ("", "*") else root
