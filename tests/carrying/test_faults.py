"""Attribution of a failed run to the script or to viaduct; a file has what a bug report needs."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

import viaduct
from carrying.failed_runs import make_failed_run
from carrying.forked_carry import carry_with_forks
from viaduct.carrying.faults import find_fault

SCRIPT = """\
import torch

net = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.ones(2, 4).cuda()).sum()
    loss.backward()
    optimizer.step()
"""
OURS = str(Path(viaduct.__file__).parent / "rehearsal" / "torch_stage" / "device.py")
THEIRS = "/opt/env/lib/python3.11/site-packages/some_package/ops.py"


CASES = {
    "a package that is not there": (["OWN"], "ModuleNotFoundError: No module named 'timm'", "package"),
    "a library of a package": (
        ["OWN", THEIRS],
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "package",
    ),
    "a name that a release lacks": (
        ["OWN", THEIRS],
        "ImportError: cannot import name 'container_abcs' from 'torch._six' (unknown location)",
        "package",
    ),
    "a name that the project lacks": (["OWN"], "ImportError: cannot import name 'Net' from 'model'", "script"),
    "a file": (["OWN"], "FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'", "file"),
    "a variable that a checkpoint lacks": (
        ["OWN"],
        "NotFoundError: Key dense/kernel not found in checkpoint",
        "script",
    ),
    "a mistake in the script": (["OWN"], "TypeError: unsupported operand type(s) for +: 'int' and 'str'", "script"),
    "a mistake of ours": (["OWN", OURS], "AttributeError: 'Device' object has no attribute 'index'", "viaduct"),
    "an import of ours": (["OWN", OURS], "ImportError: cannot import name 'x' from 'torch._C'", "viaduct"),
    "an operator that the stand-in lacks": (
        ["OWN"],
        "NotImplementedError: Could not run 'aten::foo' with arguments from the 'PrivateUse1' backend.",
        "viaduct",
    ),
    "what is done around a run": (
        ["OWN", THEIRS],
        "viaduct.rehearsal.limits.StandInFails: ValueError: zip() argument 2 is longer than argument 1",
        "viaduct",
    ),
    "a name that a newer NumPy has not": (
        ["OWN", THEIRS],
        "AttributeError: module 'numpy' has no attribute 'int'.\n`np.int` was a deprecated alias\n    https://numpy.org",
        "package",
    ),
    "an argument of a newer NumPy": (["OWN"], "ValueError: NoneType copy mode not allowed.", "package"),
    "a name that the script's own module lacks": (
        ["OWN"],
        "AttributeError: module 'utils_of_mine' has no attribute 'load'",
        "script",
    ),
    "a name that another SciPy had": (
        ["OWN"],
        "ImportError: cannot import name 'imsave' from 'numpy.misc' (/opt/env/numpy/misc/__init__.py)",
        "package",
    ),
    "a part of tf.contrib": (
        ["OWN"],
        "ImportError: cannot import name 'learn' from 'tensorflow.contrib' (/opt/env/contrib/__init__.py)",
        "viaduct",
    ),
    "a name of a part of tf.contrib": (
        ["OWN"],
        "AttributeError: module 'tensorflow.contrib.slim' has no attribute 'model_analyzer'",
        "viaduct",
    ),
    "no network": (
        ["OWN", THEIRS],
        "Exception: URL fetch failure on https://x.org/mnist.npz: None -- [Errno -2] Name or service not known",
        "file",
    ),
    "a name of Python 2": (["OWN"], "AttributeError: module 'urllib' has no attribute 'urlretrieve'", "script"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_where_the_traceback_ends(name: str, tmp_path: Path) -> None:
    frames, failure, whose = CASES[name]
    found = find_fault(make_failed_run(tmp_path, frames, failure))
    assert found.owner == whose
    assert ("reproducer.txt" in found.advice) == (whose == "viaduct")
    assert ("--fake-data" in found.advice) == (whose == "file")


def test_another_release_is_named_with_the_error_and_not_with_its_last_line(tmp_path: Path) -> None:
    failure = "AttributeError: module 'numpy' has no attribute 'int'.\nFor more see\n    https://numpy.org/notes.html"
    text = find_fault(make_failed_run(tmp_path, ["OWN"], failure)).text
    assert text.startswith("the original needs another release of 'numpy' than ")
    assert text.endswith(": AttributeError: module 'numpy' has no attribute 'int'")


def test_an_error_in_a_graph_is_reported_with_its_node_and_reason(tmp_path: Path) -> None:
    failure = (
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:\n\nDetected at node "
        "'net/Relu' defined at (most recent call last):\n    File \"train.py\", line 3\nNode: 'net/Relu'\n"
        "input depth must be evenly divisible by filter depth: 1 vs 64\n\t [[{{node net/Relu}}]]\n\nOriginal stack"
    )
    text = find_fault(make_failed_run(tmp_path, ["OWN"], failure)).text
    assert text.endswith("input depth must be evenly divisible by filter depth: 1 vs 64 (node net/Relu)")


def test_an_exit_without_a_traceback_is_reported_with_the_last_line(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, [], "")
    (Path(run.plan.record_folder) / "output.txt").write_text(
        "usage: train.py\ntrain.py: error: unrecognized arguments: --x\n"
    )
    text = find_fault(run).text
    assert text.endswith("it ended with exit code 1 (train.py: error: unrecognized arguments: --x)")


@pytest.mark.parametrize(
    ("code", "ending"), [(255, "it ended with exit code 255"), (139, "it was ended by SIGSEGV"), (3, "exit code 3")]
)
def test_only_the_number_of_a_signal_is_called_one(tmp_path: Path, code: int, ending: str) -> None:
    run = make_failed_run(tmp_path, [], "")
    (Path(run.plan.record_folder) / "output.txt").write_text("")
    failed = replace(run, summary=replace(run.summary, script_exit_code=code))
    assert ending in find_fault(failed).text


def test_after_a_crash_viaduct_is_at_fault_only_probably(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, [], "")
    fault = find_fault(replace(run, summary=replace(run.summary, script_exit_code=139)))
    assert (fault.owner, fault.is_certain) == ("viaduct", False)
    assert fault.advice.startswith("This is probably a fault of viaduct")


def test_horovod_that_a_migration_left_is_a_matter_of_review(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN"], "ModuleNotFoundError: No module named 'horovod'")
    assert find_fault(run).owner == "viaduct"  # the original's is served by gloo
    on_the_npu = replace(run, name="migrated", plan=replace(run.plan, platform="npu"))
    found = find_fault(on_the_npu)
    assert found.owner == "limit"
    assert "--migrated" in found.advice


def test_a_module_that_shadows_a_package_is_a_fault_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("")
    failure = "AttributeError: module 'numpy' has no attribute 'int'"
    assert find_fault(make_failed_run(tmp_path, ["OWN"], failure)).owner == "script"


def test_a_module_that_tensorflow_2_15_lacks_is_not_called_missing(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    failure = "ModuleNotFoundError: No module named 'tensorflow.models'"
    found = find_fault(make_failed_run(tmp_path, ["OWN"], failure))
    assert found.owner == "viaduct"
    assert "pip install" not in found.advice


@pytest.mark.process
def test_a_fault_of_viaduct_leaves_what_a_report_needs(tmp_path: Path) -> None:
    copy = SCRIPT.replace(".cuda()", ".npu()").replace("import torch\n", "import torch\nimport torch_npu.unknown\n")
    for folder, text in (("project", SCRIPT), ("copy", copy)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(text)
    answer = carry_with_forks(tmp_path / "project", "train.py", "--migrated", "../copy", "--out", "../carried")
    assert answer.returncode == 2, answer.stderr
    assert "At fault: viaduct, not the script" in answer.stdout
    assert "reproducer.txt: it has the command, the versions" in answer.stdout
    text = (tmp_path / "carried" / "reproducer.txt").read_text()
    assert "Command: viaduct carry train.py --migrated ../copy" in text
    assert f"viaduct {viaduct.__version__}, python 3." in text
    assert ">     2  import torch_npu.unknown" in text
    assert text.rstrip().endswith("No module named 'torch_npu.unknown'")
    assert "original | " not in text
    fine = carry_with_forks(tmp_path / "project", "train.py", "--out", "../fine")
    assert fine.returncode == 0, fine.stdout + fine.stderr
    assert not (tmp_path / "fine" / "reproducer.txt").exists()
