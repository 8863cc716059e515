"""Scripts for TensorFlow 2, which the rules for 1.15 do not bring to the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.checking import check_noop, check_says
from migration.small_project import migrated_project
from viaduct.migration.summary import summarise


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\nx = tf.Session()\n",
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n",
        "import tensorflow as tf\n# tf.function and tf.GradientTape come later\n",
        "import tensorflow as tf\nhost.function(tf)\n",
    ],
)
def test_a_script_of_tensorflow_1_is_not_reported(source: str) -> None:
    check_noop("tensorflow2", source)


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\n@tf.function\ndef step(x):\n    return x\n",
        "import tensorflow as tf\n@tf.function(autograph=False)\ndef step(x):\n    return x\n",
        "import tensorflow as tf\nwith tf.GradientTape() as tape:\n    loss = f(x)\n",
        "import tensorflow.compat.v2 as tf\ntf.keras.Model()\n",
        "from tensorflow.compat import v2 as tf2\ntf2.keras.Model()\n",
        "from tensorflow import GradientTape\nwith GradientTape() as tape:\n    pass\n",
    ],
)
def test_a_script_of_tensorflow_2_is_reported_once(source: str) -> None:
    result = check_says("tensorflow2", source, "manual", "TensorFlow 2")
    assert len(result.findings) == 1


def test_eager_training_is_never_called_complete(tmp_path: Path) -> None:
    text = (
        "import tensorflow as tf\n@tf.function\ndef step(x):\n    with tf.GradientTape() as tape:\n"
        "        loss = net(x)\n"
        "for x in tf.data.Dataset.range(4).batch(2, drop_remainder=True):\n    step(x)\n"
    )
    (tmp_path / "train.py").write_text(text)
    assert summarise(migrated_project(tmp_path)).verdict == "incomplete"
