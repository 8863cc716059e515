"""The table of symbols: every entry is true of the rules that there are."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrate_source
from viaduct.migration.support_table import SYMBOLS, Symbol, find_symbol, list_names_without_rule


def call_of(symbol: Symbol) -> str:
    name = symbol.name.removesuffix(".*") + (".something" if symbol.name.endswith(".*") else "")
    spelled = name.replace("tensorflow.estimator.tpu.", "tensorflow.contrib.tpu.").replace("tensorflow.", "tf.", 1)
    if spelled.startswith("tf.python."):
        module, _, last = name.rpartition(".")
        return f"from {module} import {last}\nimport tensorflow as tf\nx = {last}()\n"
    if symbol.rule == "dropout":
        return "import tensorflow as tf\nx = tf.nn.dropout(y, 0.5)\n"
    if symbol.name.endswith("OptimizerOptions"):
        return "import tensorflow as tf\n"
    return f"import tensorflow as tf\nx = {spelled}(y)\nprint(x)\n"


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.name)
def test_the_rule_that_the_table_names_is_the_one_that_speaks(symbol: Symbol) -> None:
    findings = migrate_source(call_of(symbol)).findings
    spoke = {finding.rule.removeprefix("tf1.") for finding in findings}
    assert (symbol.rule or "unsupported_api") in spoke, findings
    assert bool(symbol.rule) != ("unsupported_api" in spoke)


def test_every_symbol_that_is_reported_says_what_to_do_in_both_languages() -> None:
    for symbol in SYMBOLS:
        assert bool(symbol.rule) != bool(symbol.advice and symbol.advice_zh), symbol


def test_names_below_a_star_and_unknown_ones() -> None:
    found = find_symbol("tensorflow.contrib.nccl.all_sum")
    assert found is not None
    assert found.support == "unsupported"
    assert find_symbol("tensorflow.add") is None
    assert find_symbol("tensorflow") is None
    assert len({symbol.name for symbol in SYMBOLS}) == len(SYMBOLS)
    assert "tensorflow.CriticalSection" in list_names_without_rule()


def test_other_functions_of_the_same_name_are_left_alone() -> None:
    check_noop("unsupported_api", "import mine as tf\ntf.CriticalSection()\ntf.contrib.nccl.all_sum(x)\n")
    check_noop("unsupported_api", "import tensorflow as tf\ntf.random.uniform([2])\ntf.add(1, 2)\n")
