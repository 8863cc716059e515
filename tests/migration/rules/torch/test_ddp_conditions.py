"""Conditions for one process per card."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_says, migrate_source
from migration.rules.torch.data_parallel_script import LOOP, SCRIPT


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("shuffle=True", "shuffle=batch > 1", "decided at run time"),
        ("shuffle=True", "sampler=other", "argument for a sampler"),
        ("train = DataLoader", "train = make", "uses a DataLoader"),
        ("batch_size=batch, shuffle=True", "shuffle=True, **settings", "**settings"),
        ("batch_size=batch, shuffle=True", "batch_size=None, shuffle=True", "no batch size"),
        ("train = DataLoader", "a = train = DataLoader", "uses a DataLoader"),
        ("for epoch in range(args.epochs):", "while True:", "no loop over epochs"),
        ("device_ids=[0, 1])", "dim=1)", "dim 0"),
        ("device_ids=[0, 1])", "[0, 1], None, 1)", "dim 0"),
        ("device_ids=[0, 1])", "*settings)", "which model"),
        ("nn.DataParallel(model, ", "nn.DataParallel(**kw, ", "which model"),
        ("def main(args):", "import hydra\n@hydra.main()\ndef main(args):", "decorator"),
        ("torch.manual_seed(1)", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "visible cards"),
        ('model.to("cuda:0")', "model.cuda(pick())", "which card pick()"),
        ("torch.manual_seed(1)", "torch.distributed.init_process_group('nccl')", "distributed path already"),
        ("class Net(nn.Module)", "class Mine(nn.DataParallel): pass\nclass Net(nn.Module)", "Mine derives"),
    ],
)
def test_if_a_condition_fails_nothing_is_edited_and_it_is_reported(old: str, new: str, reason: str) -> None:
    source = dedent(SCRIPT).replace(old, new)
    result = check_says("data_parallel_ddp", source, "manual", reason, data_parallel="ddp")
    assert ("init_process_group('hccl')" in result.findings[0].message) == ("path already" not in reason)
    assert len(result.findings) == 1


def test_a_notebook_and_an_imported_file_are_refused() -> None:
    result = migrate_source(dedent(SCRIPT), "data_parallel_ddp", path="train.ipynb", data_parallel="ddp")
    assert not result.changed
    assert "notebook" in result.findings[0].message
    library = dedent(SCRIPT).partition("if __name__")[0]
    result = migrate_source(library, "data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert "no start was found" in result.findings[0].message


@pytest.mark.parametrize(("batch", "cards"), [("1", "[0, 1]"), ("20", "[0, 1, 2]")])
def test_a_batch_that_cannot_be_divided_among_ranks_is_refused(batch: str, cards: str) -> None:
    text = LOOP.replace("DECISION", "pass").replace("batch_size=20", f"batch_size={batch}")
    text = text.replace(".cuda())", f".cuda(), device_ids={cards})")
    result = migrate_source(text, "torch.data_parallel_ddp", data_parallel="ddp")
    assert not result.changed
    assert "cannot be divided" in result.findings[0].message


def test_files_that_every_rank_writes_are_reported() -> None:
    text = LOOP.replace("DECISION", "open('log.txt', 'a').write('x')\n        open('names.txt').read()")
    result = migrate_source(text, "torch.data_parallel_ddp", data_parallel="ddp")
    output = [finding.message for finding in result.findings if finding.status == "manual"]
    assert len(output) == 1
    assert "open('log.txt', 'a')" in output[0]
    assert any("if the number of ranks divides it" in finding.message for finding in result.findings)
