"""Branches that ranks could take differently."""

from __future__ import annotations

import pytest

from migration.checking import migrate_source
from migration.rules.torch.data_parallel_script import LOOP, SCRIPT, ddp


def test_a_condition_around_the_wrapper_gets_advice() -> None:
    wrap = "model = nn.DataParallel(model, device_ids=[0, 1])"
    _, output = ddp(SCRIPT.replace(wrap, f"if args.parallel:\n            {wrap}"))
    assert any("depends on args.parallel" in message for _, message in output)
    _, output = ddp(SCRIPT.replace(wrap, f"if torch.cuda.device_count() > 1:\n            {wrap}"))
    assert not any("depends on" in message for _, message in output)


@pytest.mark.parametrize(
    "decision",
    [
        "sched.step(total)",
        "bad = bad + 1 if total > best else 0\n        if bad > 3:\n            break",
        "if math.isnan(total):\n            break",
        "if total < best:\n            torch.save(net.state_dict(), 'best.pt')",
        "stopper(total, net)\n        if stopper.early_stop:\n            break",
        "history = []\n        history.append(total)\n        if min(history[-3:]) > best:\n            return",
        "for group in opt.param_groups:\n            group['lr'] = 0.1 if total > 1 else 0.01",
    ],
)
def test_a_branch_on_a_value_of_one_rank_is_refused(decision: str) -> None:
    result = migrate_source(LOOP.replace("DECISION", decision), "torch.data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert [finding.status for finding in result.findings] == ["manual"]
    assert "samples of one rank" in result.findings[0].message
    assert "all_reduce" in result.findings[0].message


@pytest.mark.parametrize(
    "decision",
    [
        "print(total)",
        "if total < best:\n            best = total\n            print('better', best)",
        "if not math.isfinite(total):\n            raise ValueError(total)",
        "accuracy = evaluate(net, test)\n        if accuracy > best:\n            break",
        "if epoch > 3:\n            break",
    ],
)
def test_printed_values_and_values_equal_on_all_ranks_are_no_divergence(decision: str) -> None:
    assert migrate_source(LOOP.replace("DECISION", decision), "torch.data_parallel_ddp", data_parallel="ddp").changed
