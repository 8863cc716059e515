from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite

HELPER = "from accelerator_device import accelerator\n"


def test_used_names_stay_imported() -> None:
    before = f"from torch.cuda import amp, nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    after = f"from torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n"
    check_rewrite("unused_imports", before, after, to="any")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nfrom torch.cuda.amp import autocast\n",
        f"import torch\nfrom torch.cuda import nvtx\n{HELPER}nvtx.mark('a')\naccelerator.init()\n",
        f'from torch.cuda.amp import autocast\n{HELPER}__all__ = ["autocast", "accelerator"]\n',
        f"from torch.cuda.amp import autocast\n{HELPER}__all__ = ['autocast', 'accelerator']\n",
    ],
)
def test_what_needs_nothing_for_the_available_card_stays(source: str) -> None:
    check_noop("unused_imports", source, to="any")
