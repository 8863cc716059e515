"""Replace dropout by the NPU's operator.

     import tensorflow as tf
    +from npu_bridge.estimator import npu_ops
    -y = tf.nn.dropout(x, rate=a - 0.1)
    +y = npu_ops.dropout(x, keep_prob=1.0 - (a - 0.1))

A call with noise_shape, and one with the signature of TensorFlow 2, stay and get advice. A literal keep_prob of 0 (a
rate of 1), unpacked arguments, and a rate with more than two positional arguments need manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.limits import Bilingual
from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.predicates import is_literal_in, is_none_or_absent
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("N1",), category="performance")

NO_PARENTHESES = (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Subscript)  # after `1.0 -`


@rule.call("tensorflow.nn.dropout")
def replace_dropout(site: Site) -> None:
    """Replace a dropout by the device's operator; if the arguments do not allow that, report it or advise on it."""
    obstacle = find_obstacle(site)
    if obstacle is not None:
        site.request_review(*obstacle)
    elif not is_none_or_absent(site.argument("noise_shape", 2)):
        site.advise(
            "dropout with a noise_shape stays TensorFlow's own", zh="带 noise_shape 的 dropout 保留 TensorFlow 实现"
        )
    else:
        replace_rate(site, site.argument("rate", 5))
        site.rename(f"{site.import_npu_name('npu_ops')}.dropout")
        site.report_change("dropout becomes the device's operator", zh="dropout 替换为昇腾算子")


def find_obstacle(site: Site) -> Bilingual | None:
    """Return the reason why the arguments cannot be those of npu_ops.dropout; None if they can."""
    if site.has_unpacked_arguments or not site.is_editable:
        return (
            "arguments are unpacked here, or the call is in an f-string: npu_ops.dropout takes keep_prob",
            "参数为解包形式,或位于 f-string 中:npu_ops.dropout 使用 keep_prob",
        )
    keep_prob, rate = site.argument("keep_prob", 1), site.argument("rate", 5)
    if not is_none_or_absent(site.argument("noise_shape", 2)):
        return None  # such a call stays, whatever its rate
    if is_literal_in(keep_prob, 0) or is_literal_in(rate, 1):
        return "keep_prob is 0 here: the device's operator takes (0, 1]", "keep_prob 为 0:昇腾算子取值范围为 (0, 1]"
    if is_none_or_absent(keep_prob) and is_none_or_absent(rate):
        return "the call has neither keep_prob nor rate", "未给出 keep_prob 或 rate"
    if not is_none_or_absent(rate) and len(site.node.args) > 2:
        return (
            "name the arguments of this dropout: npu_ops.dropout takes keep_prob in place of rate",
            "请为该 dropout 的参数写明关键字:npu_ops.dropout 使用 keep_prob 而非 rate",
        )
    return None


def replace_rate(site: Site, rate: ast.expr | None) -> None:
    """Replace the keyword rate=… by keep_prob=1.0 - …, and remove a rate or a keep_prob of None."""
    keyword = site.keyword("rate")
    if keyword is None:
        return
    if is_none_or_absent(rate):
        site.remove_argument(keyword)
    else:
        site.edit.rename_keyword(keyword, "keep_prob")
        begin, end = site.source.span(keyword.value)
        outer_begin = find_start_with_parentheses(site, begin)
        needs_parentheses = not isinstance(keyword.value, NO_PARENTHESES) and outer_begin == begin
        site.edit.insert(outer_begin, "1.0 - (" if needs_parentheses else "1.0 - ")
        if needs_parentheses:
            site.edit.insert(end, ")")
        drop_keep_prob(site)


def find_start_with_parentheses(site: Site, begin: int) -> int:
    """Return the position of the first opening parenthesis directly before a position; the position without any."""
    token = site.source.token_before(begin)
    while token is not None and token.text == "(":
        begin = token.start
        token = site.source.token_before(begin)
    return begin


def drop_keep_prob(site: Site) -> None:
    """Remove a keep_prob of None, a keyword or the second positional argument."""
    keyword = site.keyword("keep_prob")
    if keyword is not None:
        site.remove_argument(keyword)
    elif len(site.node.args) > 1:
        site.remove_argument(site.node.args[1])


add_notices(
    rule,
    Notice(
        ("tensorflow.compat.v2.nn.dropout",),
        "the TensorFlow 2 signature (rate as second argument) stays; npu_ops.dropout(x, keep_prob) is faster",
        "TensorFlow 2 签名(第二个参数为 rate)保持不变;npu_ops.dropout(x, keep_prob) 性能更好",
        status="advice",
    ),
)
