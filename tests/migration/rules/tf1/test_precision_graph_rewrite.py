from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, migrate_source

HEAD = "import tensorflow as tf\n"
REWRITE = "tf.train.experimental.enable_mixed_precision_graph_rewrite"


def test_a_rewrite_that_only_wraps_the_optimizer_is_removed() -> None:
    check_rewrite(
        "precision_graph_rewrite",
        HEAD + f"if fp16:\n    opt = {REWRITE}(\n        opt, loss_scale=scale)\nrun(opt)\n",
        HEAD + "if fp16:\n    pass\nrun(opt)\n",
    )


def test_within_an_expression_the_optimizer_itself_stays() -> None:
    source = HEAD + f"step = {REWRITE}(opt).minimize(loss)\nother = {REWRITE}(make(1))\n"
    text = migrate_source(source, "precision_graph_rewrite").after.decode()
    assert text == HEAD + "step = opt.minimize(loss)\nother = make(1)\n"


def test_a_given_loss_scale_needs_manual_review() -> None:
    result = migrate_source(HEAD + f"opt = {REWRITE}(opt, loss_scale='dynamic')\nx = 1\n", "precision_graph_rewrite")
    assert any(finding.status == "manual" and "'dynamic'" in finding.message for finding in result.findings)


def test_the_default_loss_scale_needs_manual_review_too() -> None:
    result = migrate_source(HEAD + f"opt = {REWRITE}(opt)\nx = 1\n", "precision_graph_rewrite")
    assert any(finding.status == "manual" and "(dynamic)" in finding.message for finding in result.findings)


def test_the_environment_variable_is_removed_too() -> None:
    check_rewrite(
        "precision_graph_rewrite",
        "import os\nos.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '1'\nx = 1\n",
        "import os\nx = 1\n",
    )
    check_noop("precision_graph_rewrite", "print('TF_ENABLE_AUTO_MIXED_PRECISION')\n")


@pytest.mark.parametrize("line", ["os.environ['NAME'] = '{}'", "name = os.environ['{}'] = '1'"])
def test_assignments_to_something_else_stay(line: str) -> None:
    check_noop("precision_graph_rewrite", "import os\n" + line.format("TF_ENABLE_AUTO_MIXED_PRECISION") + "\n")
