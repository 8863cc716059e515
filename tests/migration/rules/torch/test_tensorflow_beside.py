from __future__ import annotations

from migration.checking import check_noop, check_says

RULE = "torch.tensorflow_beside"


def test_somebody_elses_session_is_left_alone() -> None:
    check_noop(RULE, "import torch\nimport requests\nrequests.Session()\n")


def test_the_first_session_of_a_pytorch_file_is_mentioned_once() -> None:
    source = "import torch\nimport tensorflow as tf\na = tf.Session()\nb = tf.Session()\ntorch.ones(1).cuda()\n"
    result = check_says(RULE, source, "advice", "runs on the host")
    assert [finding.line for finding in result.findings] == [3]
