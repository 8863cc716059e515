"""One wrong number in the migrated copy: `carry` exits with 1, says what is wrong and names the line; with none, 0.

`test_mutations.py` asks of many more changes only that none is said to agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import (
    ON_THE_NPU,
    TF1,
    TORCH,
    carry_copy,
    carry_copy_in_forks,
    list_met_limits,
    migrate_text,
    replace_once,
)

# By name: the correct text, the wrong text, arguments, texts that the output and the first suspected line must contain.
TORCH_MISTAKES: dict[str, tuple[str, str, list[str], str, str]] = {
    "bn_epsilon": ("eps=1e-5", "eps=1e-3", [], "norm: eps is 1e-05 in the original and 0.001", "eps=1e-3"),
    "learning_rate": ("lr=0.1,", "lr=0.2,", [], "lr is 0.1 in the original and 0.2", "lr=0.2"),
    "momentum": ("momentum=0.9", "momentum=0.99", [], "momentum is 0.9 in the original and 0.99", "momentum=0.99"),
    "label_smoothing": ("smoothing=0.1", "smoothing=0.0", [], "label_smoothing is 0.1 in", "smoothing=0.0"),
    "weight_decay": ("decay=1e-3", "decay=1e-4", [], "weight_decay is 0.001 in", "decay=1e-4"),
    "keep_prob_for_rate": ("Dropout(0.1)", "Dropout(0.9)", [], "drop: p is 0.1 in", "Dropout(0.9)"),
    "steps_divided_otherwise": ("// 16 // 2", "/ 16 / 2", [], "learning rate differs first in step", "/ 16 / 2"),
    "drop_last_lost": (", drop_last=True", "", ["--steps", "8"], "drop_last is True in the original", "DataLoader("),
    "gradients_not_unscaled": ("scaler.unscale_(optimizer)", "pass", ["--", "--amp"], "", "pass"),
    "all_reduce_lost": (
        "net = DDP(net, device_ids=[local])",
        "pass",
        ["--ranks", "2"],
        "not averaged over the ranks",
        "pass",
    ),
}
# The same of a TensorFlow 1 script; the last is how the carrying ends.
TF1_MISTAKES: dict[str, tuple[str, str, list[str], str, str]] = {
    "learning_rate": ("exponential_decay(0.05,", "exponential_decay(0.1,", [], "0.05 in the original and 0.1", "(0.1,"),
    "bn_epsilon": ("epsilon=1e-3", "epsilon=1e-1", [], "0.001 in the original and 0.1", "epsilon=1e-1"),
    "keep_prob_for_rate": ("keep_prob=1.0 - 0.1", "keep_prob=0.1", [], "from step 0 on", "keep_prob=0.1"),
    "momentum": ("momentum=0.9", "momentum=0.99", [], "0.9 in the original and 0.99", "momentum=0.99"),
    "steps_divided_otherwise": ("// 16 // 4", "/ 16 * 4", [], "3 in the original and 60", "/ 16 * 4"),
    "wrong_loss_scale": ("minimize(loss,", "minimize(2.0 * loss,", [], "", "minimize(2.0 * loss,"),
    "drop_remainder_lost": (", drop_remainder=True", "", [], "drop-remainder", ""),
    "broadcast_skipped": (
        "NPUBroadcastGlobalVariablesHook(0, get_rank_id()), ",
        "",
        ["--ranks", "2"],
        "Rank 0 begins as in the original, but not rank 1",
        "hooks = [tf.train",
    ),
    "all_reduce_lost": (
        "NPUDistributedOptimizer(tf.train.MomentumOptimizer(rate, momentum=0.9))",
        "tf.train.MomentumOptimizer(rate, momentum=0.9)",
        ["--ranks", "2"],
        "not averaged over the ranks",
        "optimizer = tf.train.Momentum",
    ),
}


QUICK_MISTAKES = ("learning_rate",)  # the others in `make test-all`


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(mistake, marks=() if mistake in QUICK_MISTAKES else pytest.mark.slow) for mistake in TORCH_MISTAKES],
)
def test_a_wrong_number_is_found_and_its_line_is_named(mistake: str, tmp_path: Path) -> None:
    old, new, words, output, line = TORCH_MISTAKES[mistake]
    options = words if "--steps" in words else ["--steps", "6", *words]
    result = carry_copy_in_forks(tmp_path, TORCH, replace_once(ON_THE_NPU, old, new), *options)
    assert result.code == 1, result.stderr
    assert result.record["verdict"] == "differs"
    assert output in result.stdout
    assert line in result.lines[0], result.lines
    assert result.record["suspects"][0]["place"] in result.stdout
    assert "report.html" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mistake", TF1_MISTAKES)
def test_wrong_numbers_of_tensorflow_1_scripts(mistake: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    old, new, words, output, line = TF1_MISTAKES[mistake]
    copy = replace_once(migrate_text(TF1, tmp_path), old, new)
    result = carry_copy(tmp_path, TF1, copy, "--steps", "6", *words)
    assert output in result.stdout
    if mistake == "drop_remainder_lost":
        assert (result.code, result.record["verdict"]) == (2, "could not run"), result.stderr
        assert "dataset.shuffle(120).repeat().batch(batch_size)" in {
            hit["text"].partition("= ")[2] for hit in list_met_limits(result)
        }
        return
    assert (result.code, result.record["verdict"]) == (1, "differs"), result.stdout + result.stderr
    assert line in result.lines[0], result.lines


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--ranks", "2"], ["--", "--amp"]], ids=["alone", "two_ranks", "amp"])
def test_without_a_wrong_number_the_sides_agree_exactly(words: list[str], tmp_path: Path) -> None:
    result = carry_copy(tmp_path, TORCH, ON_THE_NPU, "--steps", "8", *words)
    assert result.record["bitwise"], result.stdout + result.stderr
    missed = [edit["text"] for edit in result.record["edits"] if not edit["executed"]]
    if "--ranks" in words:  # one process never comes to the line that begins the process group
        assert (result.code, missed) == (0, [])
    else:
        assert (result.code, missed) == (3, ['dist.init_process_group("hccl")'])
