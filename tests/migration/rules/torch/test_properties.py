from __future__ import annotations

import pytest

from migration.checking import check_noop, list_findings


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.cuda.get_device_properties(0).major)\n",
        "import torch\np = torch.cuda.get_device_properties(0)\nprint(p.multi_processor_count)\n",
        "import torch\nclass A:\n    def f(self):\n        self.p = torch.cuda.get_device_properties(0)\n"
        "        print(self.p.minor)\n",
    ],
)
def test_properties_that_the_card_lacks_are_reported(text: str) -> None:
    assert [status for _, status in list_findings(text, "properties")] == ["manual"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\np = torch.cuda.get_device_properties(0)\nprint(p.name, p.total_memory)\n",
        "import torch\nprint(torch.cuda.get_device_properties)\nv = sys.version_info\nv.major\n",
    ],
)
def test_nothing_is_reported_without_cause(text: str) -> None:
    check_noop("torch.properties", text)
