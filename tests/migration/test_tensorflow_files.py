"""A file of TensorFlow gets no rule of PyTorch, whatever it is called and whatever strings it holds."""

from __future__ import annotations

import pytest

from migration.checking import migrated

TF = "import tensorflow as tf\n"
STRINGS = {
    "a flag": 'tf.app.flags.DEFINE_string("all_reduce_spec", "nccl", "x")\n',
    "a flag by keywords": 'from absl import flags\nflags.DEFINE_string(name="spec", default="nccl", help="x")\n',
    "an option": 'import argparse\nargparse.ArgumentParser().add_argument("--backend", default="nccl")\n',
    "a choice": 'def f(spec):\n    return spec == "nccl" or spec in ("nccl", "gloo")\n',
    "a default": 'def f(all_reduce_spec="nccl", device="cuda"):\n    return all_reduce_spec\n',
    "a dictionary": 'DEFAULTS = {"all_reduce": "nccl", "device": "cuda:0"}\n',
    "a method": "def f(x):\n    return x.cuda()\n",
    "a variable": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n',
    "a variable with a default": 'import os\nos.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")\n',
    "a command": 'import subprocess\nsubprocess.run(["python", "-m", "torch.distributed.launch", "x.py"])\n',
}


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("way", STRINGS)
@pytest.mark.parametrize(
    "framework", [TF, "import tensorflow.compat.v1 as tf\n", "from tensorflow import flags\n" + TF]
)
def test_strings_of_a_tensorflow_file_stay(framework: str, way: str, distributed: bool) -> None:
    source = framework + STRINGS[way]
    others = {"other.py": "import torch\nx = torch.zeros(2).cuda()\n"}
    result = migrated(source, others=others, distributed=distributed)
    assert result.after.decode() == source
    assert not [one for one in result.findings if one.rule.startswith("torch.")]


def test_visible_devices_are_advice_in_a_tensorflow_file() -> None:
    result = migrated(TF + STRINGS["a variable"])
    assert [one.status for one in result.findings] == ["advice"]
    assert "ASCEND_DEVICE_ID" in result.findings[0].message
