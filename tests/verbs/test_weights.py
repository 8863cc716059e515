"""Output of `viaduct weights`: tables, files, refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from viaduct import cli, models
from viaduct.training import checkpoint
from viaduct.weights.bundle import Bundle, write_bundle

NAME = "resnet20_cifar"
# Says at its end whether it has imported torch.
WATCHED = "import atexit, sys, viaduct.cli; atexit.register(lambda: print('torch' in sys.modules)); viaduct.cli.main()"
Weights = dict[str, torch.Tensor]


class CommandResult(NamedTuple):
    code: int
    out: str
    stderr: str


Call = Callable[..., CommandResult]


@pytest.fixture
def viaduct(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line, in this process."""

    def call(*words: str | Path) -> CommandResult:
        monkeypatch.setattr("sys.argv", ["viaduct", "weights", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return CommandResult(int(end.value.code or 0), printed.out, printed.err)

    return call


def check_refusal(answer: CommandResult, *fragments: str) -> None:
    assert answer.code == 2
    assert answer.stderr.startswith("viaduct weights")
    assert "Traceback" not in answer.stderr
    for fragment in fragments:
        assert fragment in answer.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, as training writes them; the newer has averages beside its weights."""
    path = tmp_path_factory.mktemp("runs") / "try1"
    torch.manual_seed(1)
    for step in (10, 20):
        model = models.build(NAME, classes=5)
        averages = {name: tensor + 1 for name, tensor in model.state_dict().items()} if step == 20 else None
        notes = {"model": NAME, "classes": 5}
        snapshot = checkpoint.Snapshot(model.state_dict(), {"step": step}, averages)
        checkpoint.save(path / "checkpoints", step, snapshot, notes)
    data = {"global_batch": 128, "classes": 5}
    recipe = {"model": NAME, "data": data, "precision": {"compute": "fp16"}}
    (path / "recipe.json").write_text(json.dumps({"name": "mine", "file": None, "recipe": recipe}))
    return path


@pytest.fixture(scope="module")
def weights(run: Path) -> Weights:
    return load_file(run / "checkpoints" / "step-20" / "model.safetensors")


@pytest.fixture
def prefix(run: Path, tmp_path: Path, viaduct: Call) -> Path:
    answer = viaduct("export", run, "--format", "tf-checkpoint", "--out", tmp_path / "tf" / "model.ckpt-20")
    assert answer.code == 0, answer.stderr
    assert answer.out.endswith("model.ckpt-20: resnet20_cifar, 5 classes, 113 tensors, step 20\n")
    return tmp_path / "tf" / "model.ckpt-20"


def test_a_checkpoint_is_shown_with_step_totals_and_network(prefix: Path, viaduct: Call) -> None:
    answer = viaduct("show", prefix)
    assert answer.code == 0
    assert "resnet_model/conv2d/kernel" in answer.out
    assert "3x3x3x16" in answer.out
    assert "113 tensors" in answer.out
    assert "step 20" in answer.out
    assert "It looks like resnet20_cifar or resnet20_quick with 5 classes." in answer.out


@pytest.mark.parametrize("which", ["run", "prefix", "file"])
def test_weights_are_shown_without_importing_torch(
    which: str, run: Path, prefix: Path, weights: Weights, tmp_path: Path
) -> None:
    save_file(weights, tmp_path / "plain.safetensors")
    path = {"run": run, "prefix": prefix, "file": tmp_path / "plain.safetensors"}[which]
    done = subprocess.run([sys.executable, "-c", WATCHED, "weights", "show", path], capture_output=True, text=True)
    assert "resnet20_cifar" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


def test_a_checkpoint_is_shown_as_json(prefix: Path, viaduct: Call) -> None:
    shown = json.loads(viaduct("show", prefix.parent, "--json", "--filter", "*/dense/*").out)
    assert [(row["name"], row["shape"]) for row in shown["tensors"]] == [
        ("resnet_model/dense/bias", [5]),
        ("resnet_model/dense/kernel", [64, 5]),
    ]
    assert shown["totals"] == {"tensors": 2, "values": 325, "bytes": 1300}
    assert shown["step"] == 20
    assert shown["looks_like"][0] == {"model": NAME, "classes": 5, "share": 1.0}


def test_a_run_and_a_file_are_shown_too(run: Path, tmp_path: Path, weights: Weights, viaduct: Call) -> None:
    shown = json.loads(viaduct("show", run, "--json").out)
    assert (shown["kind"], shown["model"], shown["classes"], shown["step"]) == ("run", NAME, 5, 20)
    older = json.loads(viaduct("show", run / "checkpoints" / "step-10", "--json").out)
    assert older["step"] == 10
    save_file(weights, tmp_path / "plain.safetensors")
    answer = viaduct("show", tmp_path / "plain.safetensors", "--filter", "head.*")
    assert "2 tensors, 325 values" in answer.out
    assert "It looks like resnet20_cifar or resnet20_quick with 5 classes." in answer.out


def test_a_damaged_newest_checkpoint_is_passed_over(run: Path, tmp_path: Path, viaduct: Call) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    file = copied / "checkpoints" / "step-20" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    shown = viaduct("show", copied, "--json")
    assert json.loads(shown.out)["step"] == 10
    skipping = f"Skipping a damaged checkpoint: {file} does not match its checksum.\n"
    assert shown.stderr == skipping
    written = viaduct("export", copied, "--out", tmp_path / "model.ckpt")
    assert written.out.endswith(", 113 tensors, step 10\n")
    assert written.stderr == skipping
    check_refusal(viaduct("show", file.parent), "a damaged checkpoint", str(file), "another checkpoint")
    shutil.rmtree(copied / "checkpoints")
    check_refusal(viaduct("show", copied), "has no intact checkpoint yet")


def test_damaged_averages_are_passed_over_with_their_weights(run: Path, tmp_path: Path, viaduct: Call) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    (copied / "checkpoints" / "step-20" / "ema.safetensors").unlink()
    answer = viaduct("export", copied, "--format", "safetensors", "--out", tmp_path / "a.safetensors")
    assert answer.out.endswith("step 10\n")
    assert answer.stderr.count("Skipping a damaged checkpoint") == 1
    (copied / "checkpoints" / "step-10" / "manifest.json").unlink()
    check_refusal(viaduct("show", copied), "has no intact checkpoint", "ema.safetensors", "manifest.json")


def test_a_data_file_that_was_cut_short_is_a_warning(prefix: Path, viaduct: Call) -> None:
    assert "Warning" not in viaduct("show", prefix).stderr
    data = prefix.with_name(prefix.name + ".data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:-4])
    shown = viaduct("show", prefix, "--json")
    assert shown.code == 0
    assert f"Warning: {data} was cut short (" in shown.stderr
    assert "1 of its 113 variables cannot be read" in shown.stderr
    assert json.loads(shown.out)["warnings"] == [shown.stderr.rstrip("\n")]


@pytest.mark.parametrize("words", [["show"], ["export", "--out", "x"]])
def test_what_is_no_weights_is_told_without_speaking_of_another_kind(
    words: list[str], run: Path, tmp_path: Path, viaduct: Call
) -> None:
    torch.save({"epoch": 3}, tmp_path / "w.pt")
    check_refusal(answer := viaduct(*words, tmp_path / "w.pt"), "w.pt holds no weights", "epoch")
    assert "V1" not in answer.stderr
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8\xff\xe0 and so on")
    check_refusal(answer := viaduct(*words, tmp_path / "cat.jpg"), "cat.jpg holds no weights that can be read")
    assert "V1" not in answer.stderr
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "recipe.json").unlink()
    check_refusal(answer := viaduct(*words, tmp_path / "run"), "looks like a run, but has no recipe.json", "step-N")
    assert "TensorFlow" not in answer.stderr
    (tmp_path / "empty").mkdir()
    check_refusal(viaduct(*words, tmp_path / "empty"), "there are no weights in", "no recipe.json of a run")


def test_what_needs_no_import_is_told_so(run: Path, tmp_path: Path, weights: Weights, viaduct: Call) -> None:
    out = ("--out", tmp_path / "out.safetensors")
    save_file(weights, tmp_path / "mine.safetensors")
    check_refusal(viaduct("import", tmp_path / "mine.safetensors", *out), "A safetensors file needs no import")
    check_refusal(viaduct("import", run, *out), "It is a run", "--format safetensors")


def test_weights_that_cannot_be_shown_are_refused_with_the_reason(tmp_path: Path, prefix: Path, viaduct: Call) -> None:
    check_refusal(viaduct("show", tmp_path / "nowhere"), "there are no weights at", "nowhere.index")
    check_refusal(viaduct("show", tmp_path / "no.safetensors"), f"there is no file {tmp_path / 'no.safetensors'}.")
    (tmp_path / "cut.safetensors").write_bytes(b"short")
    check_refusal(viaduct("show", tmp_path / "cut.safetensors"), "not a complete safetensors file")
    check_refusal(viaduct("show", prefix, "--filter", "heda*"), "no name matches --filter 'heda*'", "There are 113")


def test_a_run_goes_to_tensorflow_and_back(prefix: Path, tmp_path: Path, weights: Weights, viaduct: Call) -> None:
    out = tmp_path / "back.safetensors"
    answer = viaduct("import", prefix, "--out", out)
    assert answer.code == 0
    assert "looks like resnet20_cifar or resnet20_quick: --model chooses." in answer.stderr
    assert answer.out == f"{out}: resnet20_cifar, 5 classes, 112 tensors, step 20; 1 more skipped\n"
    back = load_file(out)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_nothing_is_overwritten_unless_requested(prefix: Path, run: Path, tmp_path: Path, viaduct: Call) -> None:
    out = tmp_path / "back.safetensors"
    out.write_text("mine")
    check_refusal(viaduct("import", prefix, "--out", out), "is there already", "--force")
    assert out.read_text() == "mine"
    assert viaduct("import", prefix, "--out", out, "--force").code == 0
    check_refusal(viaduct("export", run, "--out", prefix), "is there already")


def test_averages_go_both_ways(run: Path, tmp_path: Path, weights: Weights, viaduct: Call) -> None:
    assert viaduct("export", run, "--out", tmp_path / "model.ckpt-20", "--ema").code == 0
    with Bundle(tmp_path / "model.ckpt-20") as bundle:
        assert "resnet_model/dense/bias/ExponentialMovingAverage" in bundle
    assert viaduct("import", tmp_path / "model.ckpt-20", "--ema", "--out", tmp_path / "e.safetensors").code == 0
    assert torch.equal(load_file(tmp_path / "e.safetensors")["head.bias"], weights["head.bias"] + 1)
    answer = viaduct("export", run, "--format", "safetensors", "--ema", "--out", tmp_path / "own.safetensors")
    assert answer.code == 0
    assert torch.equal(load_file(tmp_path / "own.safetensors")["head.bias"], weights["head.bias"] + 1)
    plain = tmp_path / "own.safetensors"
    check_refusal(viaduct("export", plain, "--ema", "--out", tmp_path / "x"), "no averages beside them")
    older = run / "checkpoints" / "step-10"
    check_refusal(viaduct("export", older, "--ema", "--out", tmp_path / "x"), "holds no averaged weights")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["--model", "resnet56_cifar"], ["lacks 180 of the 292 variables", "It looks like resnet20_cifar"]),
        (
            ["--model", "resnext50"],
            ["lacks 267 of the 267", "fp32_vars/conv2d/kernel", "resnet20_cifar or resnet20_quick with 5"],
        ),
        (["--model", "resnet5O_v1"], ["no model called 'resnet5O_v1'", "'resnet50_v1'"]),
        (["--model", "resnet50_book"], ["no TensorFlow reference"]),
        (["--classes", "10"], ["has 5 classes, this network 10", "--init-exclude 'head.*'", "--classes 5"]),
        (["--classes", "9999999999"], ["a network cannot have 9,999,999,999 classes"]),
        (["--ema"], ["no exponential moving averages"]),
        (["--slots"], ["no optimizer slots"]),
        (["--out", "x.bin"], ["must end in .safetensors"]),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    words: list[str], fragments: list[str], prefix: Path, tmp_path: Path, viaduct: Call
) -> None:
    check_refusal(viaduct("import", prefix, "--out", tmp_path / "out.safetensors", *words), *fragments)
    assert not (tmp_path / "out.safetensors").exists()


def test_no_classes_at_all_are_refused(prefix: Path, tmp_path: Path, viaduct: Call) -> None:
    answer = viaduct("import", prefix, "--out", tmp_path / "a.safetensors", "--classes", "0")
    assert answer.code == 2
    assert "--classes" in answer.stderr


def test_an_unknown_model_is_answered_with_one_list(prefix: Path, tmp_path: Path, viaduct: Call) -> None:
    answer = viaduct("import", prefix, "--out", tmp_path / "a.safetensors", "--model", "nosuch")
    check_refusal(answer, "no model called 'nosuch'")
    assert answer.stderr.count("resnext50") == 1


def test_control_characters_in_a_tensors_name_are_escaped(tmp_path: Path, viaduct: Call) -> None:
    write_bundle(tmp_path / "model.ckpt", {"\x1b[31mred [bold]x": torch.zeros(3)})
    shown = viaduct("show", tmp_path / "model.ckpt").out
    assert "\\x1b[31mred [bold]x" in shown
    assert "\x1b" not in shown


def test_the_ending_and_the_format_must_agree(run: Path, tmp_path: Path, viaduct: Call) -> None:
    check_refusal(
        viaduct("export", run, "--out", tmp_path / "a.safetensors"), "does not go with --format tf-checkpoint"
    )
    check_refusal(viaduct("export", run, "--format", "safetensors", "--out", tmp_path / "a"), "does not go with")


def test_a_run_whose_recipe_json_has_wrong_types_is_still_shown(run: Path, tmp_path: Path, viaduct: Call) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    (copied / "recipe.json").write_text('{"recipe": {"data": 3, "model": [], "precision": null}}')
    shown = json.loads(viaduct("show", copied, "--json").out)
    assert shown["model"] is None
    (copied / "recipe.json").write_text("[]")
    check_refusal(viaduct("show", copied), "recipe.json is damaged")


def test_weights_of_an_unknown_network_are_refused(tmp_path: Path, viaduct: Call) -> None:
    write_bundle(tmp_path / "model.ckpt", {"own/kernel": torch.zeros(3)})
    check_refusal(
        viaduct("import", tmp_path / "model.ckpt", "--out", tmp_path / "a.safetensors"), "none of our networks"
    )
    check_refusal(viaduct("export", tmp_path / "model.ckpt", "--out", tmp_path / "b"), "TensorFlow checkpoint already")
