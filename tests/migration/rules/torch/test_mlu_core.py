"""torch_mlu's former API."""

from __future__ import annotations

from migration.checking import check_noop, check_rewrite, check_says, migrate_source

RULE = "torch.mlu_core"
HEAD = "import torch\nimport torch_mlu\n"


def test_current_scripts_are_left_alone() -> None:
    check_noop(RULE, HEAD + "torch.mlu.set_device(0)\nx = x.to('mlu')\n", to="mlu")


def test_somebody_elses_ct_is_left_alone() -> None:
    check_noop(RULE, "import torch\nimport mine as ct\nct.set_device(0)\nx.to(ct.mlu_device())\n", to="mlu")


def test_a_name_without_counterpart_keeps_the_import() -> None:
    before = HEAD + "import torch_mlu.core.mlu_model as ct\nct.set_core_number(16)\nct.set_device(0)\n"
    result = migrate_source(before, RULE, to="mlu")
    assert result.after.decode() == before.replace("ct.set_device", "torch.mlu.set_device")
    assert [(finding.line, finding.status) for finding in result.findings] == [(4, "manual"), (5, "changed")]


def test_the_plug_in_is_imported_in_place_of_the_former_module() -> None:
    before = (
        "import torch\nimport torch_mlu.core.mlu_model as ct\ny = x.to(ct.mlu_device())  # move\nct.synchronize()\n"
    )
    after = "import torch\nimport torch_mlu\ny = x.to('mlu')  # move\ntorch.mlu.synchronize()\n"
    check_rewrite(RULE, before, after, to="mlu")


def test_functions_imported_from_the_former_package_are_replaced() -> None:
    before = HEAD + "from torch_mlu.core import mlu_model as ct\nct.set_device(1)\n"
    check_rewrite(RULE, before, HEAD + "torch.mlu.set_device(1)\n", to="mlu")


def test_a_call_in_an_f_string_keeps_the_import_and_is_reported() -> None:
    source = HEAD + "import torch_mlu.core.mlu_model as ct\nprint(f'{ct.current_device()}')\n"
    check_says(RULE, source, "manual", "mlu_model.current_device", to="mlu")
