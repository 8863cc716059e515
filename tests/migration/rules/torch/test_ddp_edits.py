"""Edits that turn a script into one process per card."""

from __future__ import annotations

from textwrap import dedent

from migration.checking import migrate_source
from migration.rules.torch.data_parallel_script import SCRIPT, ddp


def test_loader_epochs_saving_device_and_start_are_edited() -> None:
    after, output = ddp()
    for line in (
        "    train = DataLoader(data, batch_size=batch // dist.get_world_size(), sampler=DistributedSampler(data))\n",
        "    test = DataLoader(data, batch_size=batch)\n",
        "    model = DistributedDataParallel(model.npu(), device_ids=[local_rank])\n",
        '    model.to("npu")\n',
        "    for epoch in range(args.epochs):\n        train_loader.sampler.set_epoch(epoch)\n",
        '    """Keep the weights."""\n    if dist.get_rank() != 0:\n        return\n    torch.save(',
        '    torch.npu.set_device(local_rank)\n    dist.init_process_group("hccl")\n    main(parser.parse_args())\n'
        "    dist.destroy_process_group()\n",
    ):
        assert line in after, after
    assert any("torchrun --nproc_per_node=2 script.py" in message for _, message in output)
    assert not [finding for finding in output if finding[0] == "manual"]


def test_the_process_group_starts_before_the_first_use_of_a_card() -> None:
    after, _ = ddp(SCRIPT.replace("def main(args):", "mean = torch.zeros(1).cuda()\n\n    def main(args):"))
    assert 'dist.init_process_group("hccl")\nmean = torch.zeros(1).cuda()\n' in after
    assert after.endswith("    main(parser.parse_args())\n    dist.destroy_process_group()\n")
    source = dedent(SCRIPT).replace("def main(args):", "mean = torch.zeros(1).cuda()\ndef main(args):")
    others = {"other.py": "from script import Net\n"}
    result = migrate_source(source, "data_parallel_ddp", others=others, data_parallel="ddp")
    assert not result.changed
    assert "others import it" in result.findings[0].message


def test_rank_0_downloads_first() -> None:
    data = "data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))"
    after, _ = ddp(SCRIPT.replace(data, "data = fetch(\n            root, download=True)  # big"))
    assert "    if dist.get_rank() != 0:\n        dist.barrier()\n    data = fetch(\n" in after
    assert "download=True)  # big\n    if dist.get_rank() == 0:\n        dist.barrier()\n" in after
