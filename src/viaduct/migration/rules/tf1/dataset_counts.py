"""Report an assertion that compares the number of predictions with the number of examples.

A pipeline that drops its last batch yields fewer predictions than examples, so a check that the two numbers are equal
fails. The rule recognises the two numbers by their names: `num_written_lines == len(examples)`.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="batches", spec_rows=("D4",), category="report", runs_last=True)

RESULT_WORDS = ("pred", "result", "output", "num_written", "lines")
# num_predict: the number of examples to predict
EXAMPLE_WORDS = ("example", "num_actual", "num_predict", "input", "sample", "features")


@rule.node(ast.Assert, only_if_file_contains=("tensorflow",))
def check_assert(site: Site) -> None:
    test = site.node.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        report_count(site, ast.unparse(test.left), ast.unparse(test.comparators[0]))


@rule.call("tensorflow.assert_equal", "tensorflow.debugging.assert_equal")
def check_assert_equal(site: Site) -> None:
    if len(site.node.args) >= 2:
        report_count(site, ast.unparse(site.node.args[0]), ast.unparse(site.node.args[1]))


def report_count(site: Site, left: str, right: str) -> None:
    """Report a comparison that seems to be between a number of results and a number of examples."""
    sides = (left.lower(), right.lower())
    if not any("len(" in side or side.startswith("num") or "count" in side or "written" in side for side in sides):
        return
    pairs = (sides, sides[::-1])
    if any(has_any(result, RESULT_WORDS) and has_any(examples, EXAMPLE_WORDS) for result, examples in pairs):
        site.request_review(
            f"if {left} == {right} counts predictions and examples, it fails once the last batch is dropped: pad the "
            "input, or relax the check",
            zh=f"若 {left} == {right} 比较预测数与样本数,丢弃最后一批后将失败:请补齐输入或放宽断言",
            risk="high",
        )


def has_any(text: str, words: tuple[str, ...]) -> bool:
    return any(fragment in text for fragment in words)
