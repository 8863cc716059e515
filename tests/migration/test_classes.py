"""Facts about the classes of a PyTorch project."""

from __future__ import annotations

from viaduct.migration.classes import find_class, find_classes_defining, find_method_owner, is_module
from viaduct.migration.project import Project, survey

NET = "import torch.nn as nn\nclass Net(nn.Module):\n    def to(self, where):\n        pass\n"
NET += "class Deep(Net):\n    pass\n"
PLAIN = "import torch\nclass Batch:\n    def cuda(self):\n        return self\n"


def survey_files(**files: str) -> Project:
    return survey((f"{name}.py".replace("__", "/"), text.encode()) for name, text in files.items())


def test_a_class_without_torch_does_not_own_a_tensors_method() -> None:
    project = survey_files(a="import tensorflow\nclass A:\n    def cuda(self):\n        pass\n", b=PLAIN)
    assert find_classes_defining(project, "cuda") == ["b.Batch"]


def test_a_class_is_found_by_its_whole_name_or_by_a_unique_tail() -> None:
    project = survey_files(src__net=NET, other__net="import torch\nclass Batch:\n    pass\n", src__batch=PLAIN)
    assert find_class(project, "src.net.Net") == find_class(project, "net.Net") == "src.net.Net"
    assert find_class(project, "Net") is None
    assert find_class(project, "net.Missing") is None


def test_methods_are_inherited() -> None:
    project = survey_files(net=NET, more="from torch import nn\nfrom net import Deep\nclass Wide(Deep):\n    pass\n")
    assert find_method_owner(project, "more.Wide", "to") == "net.Net"
    assert find_method_owner(project, "more.Wide", "cuda") is None
    assert is_module(project, "more.Wide")
    assert not is_module(survey_files(batch=PLAIN), "batch.Batch")


def test_only_files_of_one_program_matter_to_each_other() -> None:
    project = survey_files(batch=PLAIN, alone="import torch\n", user="import torch\nimport batch\n")
    assert find_classes_defining(project, "cuda") == ["batch.Batch"]
    assert (
        find_classes_defining(project, "cuda", "user.py")
        == find_classes_defining(project, "cuda", "batch.py")
        == ["batch.Batch"]
    )
    assert find_classes_defining(project, "cuda", "alone.py") == []
