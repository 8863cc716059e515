"""Options of Hugging Face's libraries that load a package for NVIDIA cards."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "from transformers import AutoModel, TrainingArguments\n"


@pytest.mark.parametrize(
    "source",
    [
        "TrainingArguments('out', fp16=True, tf32=False, optim='adamw_torch')\n",
        "AutoModel.from_pretrained('x', load_in_8bit=False)\n",
        "AutoModel.from_pretrained('x', attn_implementation='sdpa')\n",
        "AutoModel.from_pretrained('x', attn_implementation='flash_attention_2')\n",  # the NPU has one for it
        "train(tf32=True)\n",
    ],
)
def test_options_that_the_card_supports_are_left_alone(source: str) -> None:
    check_noop("huggingface", HEAD + source)


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("TrainingArguments('out', tf32=True)\n", "TF32"),
        ("TrainingArguments('out', optim='adamw_bnb_8bit')\n", "bitsandbytes"),
        ("TrainingArguments('out', optim='adamw_apex_fused')\n", "apex"),
        ("AutoModel.from_pretrained('x', load_in_4bit=True)\n", "bitsandbytes"),
        ("net.from_pretrained('x', load_in_8bit=True)\n", "bitsandbytes"),
        ("pipe.enable_xformers_memory_efficient_attention()\n", "xformers"),
    ],
)
def test_an_option_for_nvidia_needs_review(source: str, package: str) -> None:
    check_says("huggingface", HEAD + source, "manual", package)


def test_flash_attention_needs_review_where_the_library_has_none_for_the_card() -> None:
    source = HEAD + "AutoModel.from_pretrained('x', attn_implementation='flash_attention_2')\n"
    check_says("huggingface", source, "manual", "flash_attn", to="mlu")


@pytest.mark.parametrize(("to", "backend"), [("npu", "'hccl'"), ("mlu", "'cncl'"), ("any", "accelerator.backend()")])
@pytest.mark.parametrize(
    "call",
    [
        "from transformers import TrainingArguments\nTrainingArguments('o', ddp_backend='nccl')\n",
        "from pytorch_lightning.strategies import DDPStrategy\nDDPStrategy(process_group_backend='nccl')\n",
        "from accelerate import InitProcessGroupKwargs\nInitProcessGroupKwargs(backend='nccl')\n",
        "import deepspeed\ndeepspeed.init_distributed(dist_backend='nccl')\n",
    ],
)
def test_a_backend_that_a_library_passes_on_is_replaced(call: str, to: str, backend: str) -> None:
    assert f"backend={backend})" in migrate_source("import torch\n" + call, to=to).after.decode()
