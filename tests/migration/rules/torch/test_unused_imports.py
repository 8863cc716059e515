from __future__ import annotations

from migration.checking import check_rewrite

HELPER = "from accelerator_device import accelerator\n"


def test_what_is_still_used_is_still_imported() -> None:
    before = f"from torch.cuda import amp, nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    after = f"from torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    check_rewrite("unused_imports", before, after, to="any")
