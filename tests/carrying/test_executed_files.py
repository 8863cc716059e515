"""Each side runs the files of its own tree, however the script finds them; where it does not, nothing is proved."""

from __future__ import annotations

import importlib.util
import marshal
from pathlib import Path

import pytest

from carrying.carry_scripts import CarryResult
from forked_viaduct import viaduct

TRAIN = """\
import os, sys
import torch
from torch import nn
{before}
torch.set_num_threads(1)
net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr={rate})
for step in range(3 if __name__ == "__main__" else 0):
    loss = net(torch.ones(3, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def to_npu(text: str) -> str:
    return text.replace("import torch\n", "import torch\nimport torch_npu\n").replace(".cuda()", ".npu()")


def write_tree(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def carry_trees(
    folder: Path, files: dict[str, str], changed: dict[str, str], entry: str, *words: str, **environment: str
) -> CarryResult:
    """The original in folder/project, the migrated copy in folder/copy with some files changed; run in the project."""
    write_tree(folder / "project", files)
    write_tree(folder / "copy", {name: to_npu(text) for name, text in (files | changed).items()})
    options = ["--migrated", "../copy", "--out", "../carried", "--steps", "3", *words]
    answer = viaduct("carry", entry, *options, cwd=folder / "project", **environment)
    return CarryResult(answer, folder / "carried")


def executed_files(result: CarryResult, side: str) -> dict[str, str]:
    return {module["position"]: module["file"] for module in result.record["runs"][side]["modules"]}


WAYS = """\
import importlib.util, multiprocessing, runpy, subprocess
sys.path.insert(0, {root!r} + "/absolute")
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "above"))
sys.path.append("relative")
import on_pythonpath, by_absolute, by_file, by_relative
import space.inside.deep
spec = importlib.util.spec_from_file_location("settings", {root!r} + "/settings.py")
settings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(settings)
exec(open("as_text.py").read())
runpy.run_path({root!r} + "/run_by_path.py")
if __name__ == "__main__":
    subprocess.run([sys.executable, "started.py", "word"], check=True)
    subprocess.run([sys.executable, {root!r} + "/started_by_full_path.py"], check=True)
    subprocess.run([sys.executable, "-m", "space.module"], check=True)
    import in_spawned
    for method in ("spawn", "fork"):
        process = multiprocessing.get_context(method).Process(target=in_spawned.work, args=(method,))
        process.start()
        process.join()
        assert process.exitcode == 0
    loader = torch.utils.data.DataLoader(in_spawned.Set(), num_workers=1, batch_size=None)
    assert list(loader) == [7, 7]
"""


@pytest.mark.slow
def test_every_way_of_finding_a_module_leads_into_the_own_tree(tmp_path: Path) -> None:
    root = str(tmp_path / "project")
    started = "import sys\nimport beside_started\nassert __name__ == '__main__' and sys.argv[0].endswith('.py')\n"
    in_spawned = (
        "def work(method):\n    __import__('only_' + method)\n\n\n"
        "class Set:\n    def __len__(self):\n        return 2\n\n"
        "    def __getitem__(self, place):\n        if place > 1:\n            raise IndexError\n"
        "        import only_loader\n        return 7\n"
    )
    files = {
        "tools/train.py": TRAIN.format(before=WAYS.format(root=root), rate=0.1),
        "lib/on_pythonpath.py": "",
        "absolute/by_absolute.py": "",
        "above/by_file.py": "",
        "relative/by_relative.py": "",
        "space/inside/deep.py": "",
        "space/module.py": "assert __name__ == '__main__'\n",
        "settings.py": "rate = 0.1\n",
        "as_text.py": "given = 3\n",
        "run_by_path.py": "",
        "started.py": started + "assert sys.argv[1:] == ['word']\n",
        "started_by_full_path.py": started,
        "beside_started.py": "",
        "lib/in_spawned.py": in_spawned,
        **{f"lib/only_{name}.py": "" for name in ("spawn", "fork", "loader")},
    }  # fmt: skip
    options = ["--entry", "tools/train.py"]
    result = carry_trees(tmp_path, files, {}, ".", *options, PYTHONPATH="lib" + ":" + root)
    assert result.code == 0, result.stdout + result.stderr
    for side, folder in (("original", "project"), ("migrated", "copy")):
        found = executed_files(result, side)
        mirrored = {"as_text.py"}  # read from the working folder, where the mirror has this side's file
        assert set(found) == set(files), side
        for position, file in found.items():
            assert file == str(tmp_path / folder / position) or position in mirrored, (side, position)
        assert result.record["runs"][side]["outside"] == []
        assert not [module for module in result.record["runs"][side]["modules"] if module["problem"]]


@pytest.mark.parametrize(
    "way", ["PYTHONPATH", *(pytest.param(method, marks=pytest.mark.slow) for method in ("full path", "bytecode"))]
)
def test_a_changed_number_in_a_module_is_found_whichever_tree_is_named(way: str, tmp_path: Path) -> None:
    """Seen: with PYTHONPATH=. the migrated script imported the original's module, and was said to be equal."""
    root = tmp_path / "project"
    before = f"sys.path.insert(0, {str(root)!r})\n" if way == "full path" else ""
    files = {
        "tools/train.py": TRAIN.format(before=before + "from lib.settings import RATE", rate="RATE"),
        "lib/settings.py": "RATE = 0.01\n",
    }
    if way == "bytecode":  # which says that it needs no check against its source
        cache = Path(importlib.util.cache_from_source(str(tmp_path / "copy/lib/settings.py")))
        cache.parent.mkdir(parents=True)
        code = marshal.dumps(compile("RATE = 0.01\n", "settings.py", "exec"))
        cache.write_bytes(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + b"\0" * 8 + code)
    environment = {} if way == "full path" else {"PYTHONPATH": "."}
    result = carry_trees(tmp_path, files, {"lib/settings.py": "RATE = 0.09\n"}, "tools/train.py", **environment)
    assert (result.code, result.record["verdict"]) == (1, "differs"), result.stdout + result.stderr
    assert "lib/settings.py:1: RATE = 0.09" in result.stdout


def test_a_module_that_only_the_other_tree_has_proves_nothing(tmp_path: Path) -> None:
    before = f"sys.path.append({str(tmp_path / 'project' / 'lib')!r})\nimport helper"
    files = {"train.py": TRAIN.format(before=before, rate=0.1), "lib/helper.py": "value = 1\n"}
    write_tree(tmp_path / "project", files)
    result = carry_trees(tmp_path, {"train.py": files["train.py"]}, {}, ".", "--entry", "train.py")
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "Not proved: the migrated run loaded 1 file from outside its own tree" in result.stdout
    assert "lib/helper.py" in result.stdout
    assert [doubt["kind"] for doubt in result.record["not_proved"]] == ["wrong tree"]
    assert "wrong tree" in (result.out / "report.html").read_text()


def test_a_rewritten_file_that_never_runs_proves_nothing(tmp_path: Path) -> None:
    files = {"train.py": TRAIN.format(before="import lib", rate=0.1), "lib.py": "", "evaluate.py": "x = y.cuda()\n"}
    write_tree(tmp_path, files)
    answer = viaduct("carry", "train.py", "--steps", "2", cwd=tmp_path)
    result = CarryResult(answer, tmp_path / "carried")
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "what ran agrees, but 1 file that the migration rewrote was never executed" in result.stdout
    assert result.record["not_proved"][0]["items"] == ["evaluate.py"]
