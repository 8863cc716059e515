from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_source
from viaduct.migration.rule import all_rules

SCRIPT = "import torch\nf = torch.jit.script(f)\ng = map(torch.jit.script, parts)\n"


def test_a_name_of_someone_else_is_not_reported() -> None:
    assert not migrate_source("from mylib import jit\njit.script(f)\n", "jit_script").findings


def test_rules_of_one_table_keep_their_own_names_and_documentation() -> None:
    rules = {rule.name: rule for rule in all_rules()}
    assert rules["torch.capability"].module == rules["torch.jit_script"].module
    assert rules["torch.jit_script"].doc.startswith("Advise on torch.jit.script.\n\nScripting of device code")


@pytest.mark.parametrize(("to", "message"), [("npu", "is limited on the NPU"), ("mlu", "switches scripting off")])
def test_calls_and_references_are_reported_with_the_remark_on_the_card(to: str, message: str) -> None:
    found = check_says("jit_script", SCRIPT, "advice", message, to=to).findings
    assert [finding.line for finding in found] == [2, 3]
    assert found[0].message.startswith("torch.jit.script: ")


def test_for_any_card_all_remarks_are_given_and_the_highest_risk_counts() -> None:
    source = "import torch\nprint(torch.cuda.get_device_capability())\n"
    risks = {to: migrate_source(source, "capability", to=to).findings[0].risk for to in ("npu", "mlu", "any")}
    assert risks == {"npu": "high", "mlu": "medium", "any": "high"}
    message = migrate_source(source, "capability", to="any").findings[0].message
    assert "returns None on an NPU" in message
    assert "torch.mlu returns" in message


def test_an_optimizer_that_averages_is_reported_only_where_a_sum_was_requested() -> None:
    source = (
        "import tensorflow as tf\n"
        "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
        "opt = NPUDistributedOptimizer(tf.train.AdamOptimizer())\n"
    )
    named = [finding.rule for finding in migrate_source(source, distributed=True).findings]
    assert "tf1.distribute_sum_left" not in named
    check_says("distribute_sum_left", source, "manual", "averages gradients", distributed=True, reduction="sum")
