from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

AMP = "import torch\nfrom apex import amp\n"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_a_module_of_the_user_is_not_nvidias(to: str) -> None:
    migrated_ = migrate_source("import torch\nimport apex\n", "apex", others={"apex.py": "x = 1\n"}, to=to)
    assert not migrated_.findings
    check_noop("apex", "import torch\nfrom . import apex\napex.amp.initialize(m)\n", to=to)


def test_on_the_npu_amp_stays_and_combines_gradients() -> None:
    source = AMP + "model, optimizer = amp.initialize(model, optimizer, opt_level='O2')\n"
    check_says("apex", source, "advice", "apex stays")
    result = check_says("apex", source, "advice", "combine_grad=True")
    assert not [finding for finding in result.findings if finding.status == "manual"]
    done = source.replace("'O2')", "'O2', combine_grad=True)")
    assert not [finding for finding in migrate_source(done, "apex").findings if "combine_grad" in finding.message]


def test_wrapping_before_initialize_is_reported() -> None:
    wrap = "model = torch.nn.parallel.DistributedDataParallel(model)\n"
    start = "model, optimizer = amp.initialize(model, optimizer, combine_grad=True)\n"
    check_says("apex", AMP + wrap + start, "manual", "after amp.initialize")
    right = migrate_source(AMP + start + wrap, "apex")
    assert not [finding for finding in right.findings if finding.status == "manual"]


def test_kernels_of_apex_are_reported_with_their_replacement() -> None:
    source = "import torch\nfrom apex.optimizers import FusedAdam\noptimizer = FusedAdam(params)\n"
    check_says("apex", source, "manual", "torch_npu.optim.NpuFusedAdam")
    source = "import torch\nfrom apex.normalization import FusedLayerNorm\nnorm = FusedLayerNorm(8)\n"
    check_says("apex", source, "manual", "CUDA kernel")


def test_names_that_pytorch_has_too_get_advice() -> None:
    source = "import torch\nfrom apex.parallel import convert_syncbn_model\nmodel = convert_syncbn_model(model)\n"
    check_says("apex", source, "advice", "torch.nn.SyncBatchNorm.convert_sync_batchnorm")


def test_fused_optimizers_are_advised_beside_amp_only() -> None:
    line = "optimizer = torch.optim.AdamW(params)\n"
    check_says("apex", AMP + line + "amp.initialize(m, optimizer, combine_grad=True)\n", "advice", "NpuFusedAdamW")
    check_noop("apex", "import torch\n" + line)


def test_on_the_mlu_every_import_of_apex_is_reported() -> None:
    check_says("apex", AMP, "manual", "torch.mlu.amp", to="mlu")
    check_says("apex", AMP, "manual", "torch.amp", to="any")
