"""Quick test whether a text could contain anything for a rule; most files of a project do not, and are only parsed.

A name can only be resolved to `tensorflow.X` where the text contains the word `tensorflow`, and a method rule needs its
method's name. So a text without any of these words is not searched for names and scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from viaduct.migration.frameworks import FRAMEWORKS
from viaduct.migration.options import Options
from viaduct.migration.rule import Rule, all_rules

COMMON_ROOTS = ("os",)
"""Top-level modules that most files import: for a name in them its last part is searched, `environ` of os.environ."""


def may_concern(text: str, options: Options) -> bool:
    """Return True if a rule could have something to do in a text."""
    words, methods = search_terms(options)
    return any(word in text for word in words) or (methods is not None and methods.search(text) is not None)


@lru_cache(maxsize=16)
def search_terms(options: Options) -> tuple[list[str], re.Pattern[str] | None]:
    """Return the words and the method calls of which a text needs one to concern the rules that run.

    Searching for each word is faster than one regex for all. If a rule visits every file the only word is "", which is
    in every text.
    """
    rules = [rule for rule in all_rules() if rule.is_wanted(options)]
    if any((rule.node_handlers or rule.file_handlers) and not rule.only_files_with for rule in rules):
        return [""], None
    words = {*FRAMEWORKS, *(word for rule in rules for word in words_of(rule))}
    shortest = sorted(word for word in words if not any(other in word for other in words - {word}))
    methods = "|".join(sorted({re.escape(method) for rule in rules for method in rule.method_handlers}))
    return shortest, re.compile(rf"\.\s*(?:{methods})\b") if methods else None


def words_of(rule: Rule) -> Iterator[str]:
    """Yield the words one of which a text needs for a rule's calls, references and nodes."""
    yield from rule.only_files_with
    for name in (*rule.call_handlers, *rule.reference_handlers):
        root, _, remainder = name.partition(".")
        last = remainder.rpartition(".")[2]
        yield last if root in COMMON_ROOTS and last not in ("", "*") else root
