"""Models in DataParallel."""

from __future__ import annotations

from migration.checking import check_rewrite, migrate_source

HEAD = "import torch\nfrom torch import nn\n"


def test_a_wrapper_within_an_expression_is_unwrapped() -> None:
    check_rewrite(
        "data_parallel",
        HEAD + "net = nn.DataParallel(nn.Linear(2, 2), device_ids=[0, 1]).cuda()\nnet.module.weight.zero_()\n",
        HEAD + "net = nn.Linear(2, 2).cuda()\nnet.weight.zero_()\n",
        data_parallel="unwrap",
    )


def test_a_module_access_under_a_wrapper_test_stays() -> None:
    asks = "state = net.module.state_dict() if hasattr(net, 'module') else net.state_dict()\n"
    check_rewrite(
        "data_parallel",
        HEAD + "net = nn.DataParallel(make())\n" + asks,
        HEAD + "net = make()\n" + asks,
        data_parallel="unwrap",
    )


def test_unknown_module_accesses_and_old_checkpoints_are_reported() -> None:
    source = HEAD + "net = nn.DataParallel(make())\nother.module.save()\nnet.load_state_dict(state)\n"
    result = migrate_source(source, "data_parallel", data_parallel="unwrap")
    manual = [finding.message for finding in result.findings if finding.status == "manual"]
    assert any("other" in message for message in manual)
    assert any("removeprefix('module.')" in message for message in manual)
    assert "other.module.save()" in result.after.decode()
