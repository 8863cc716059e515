from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner, Result

from viaduct import models
from viaduct.errors import BadValue, UnknownName
from viaduct.verbs.models import main

# Says at its end whether it has imported torch.
WATCHED = "import atexit, sys, viaduct.cli; atexit.register(lambda: print('torch' in sys.modules)); viaduct.cli.main()"


def viaduct_models(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize("words", [["--help"], [], ["--json"], ["--classes", "7"], ["resnet5O_v1"]])
def test_the_list_is_shown_without_importing_torch(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED, "models", *words], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_table_has_a_line_for_every_network_under_its_source() -> None:
    result = viaduct_models()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.split()[:1] and line.split()[0] in models.names()}
    assert list(rows) == models.names()
    assert rows["resnet50_v1"][1:5] == ["1001", "25,559,081", "4,089,186,304", "224x224"]
    assert "resnet50_imagenet" in rows["resnet50_v1"][5:]
    assert rows["resnet56_cifar"][1:] == ["10", "856,058", "126,009,984", "32x32", "resnet56_cifar10"]
    above = lines[lines.index(next(line for line in lines if line.startswith("resnext50 "))) - 1]
    assert "Xie et al., https://arxiv.org/abs/1611.05431" in above


def test_json_has_the_same_figures_as_numbers() -> None:
    rows = {row["name"]: row for row in json.loads(viaduct_models("--json").stdout)}
    assert list(rows) == models.names()
    amoebanet = rows["amoebanet_d"]
    assert amoebanet["parameters"] == 46_763_161
    assert amoebanet["parameters_in_training_only"] == 663_984
    assert amoebanet["macs"] == 5_715_773_792
    assert all("arxiv.org" in row["source"] for name, row in rows.items() if name != "resnet50_book")


def test_one_network_is_shown_block_by_block() -> None:
    result = viaduct_models("resnext50")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["stages.2.5", "GroupedBottleneck", "1024", "x", "14", "x", "14", "1,126,400", "219,971,584"] in lines
    assert ["total", "25,030,953", "4,230,481,920"] in lines


def test_layers_are_shown_when_requested() -> None:
    text = viaduct_models("amoebanet_d", "--layers", "--classes", "10").stdout
    assert "cells.cell_stem_0.combinations.1.right.conv_3x3" in text
    assert "in training" in text
    assert "10 classes" in text


def test_one_network_as_json_has_its_parts() -> None:
    row = json.loads(viaduct_models("resnet18_v2", "--json").stdout)
    assert list(row["parts"][0]) == ["name", "kind", "parameters", "output", "multiplications"]
    assert sum(part["multiplications"] for part in row["parts"]) == row["macs"]
    assert row["parts"][0]["output"] == [64, 56, 56]
    assert sum(part["parameters"] for part in row["parts"]) == row["parameters"] == 11_692_329


def test_an_unknown_network_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnext50'"):
        viaduct_models("resnext5O")


def test_a_network_of_another_package_is_looked_for_with_source() -> None:
    with pytest.raises(BadValue, match="`viaduct models --source timm resnet10t` looks for the name") as refusal:
        viaduct_models("timm:resnet10t")
    assert "Closest" not in str(refusal.value)
    with pytest.raises(BadValue, match="--source timm` lists"):
        viaduct_models("package.module:function")


def test_a_name_like_none_is_answered_with_one_list() -> None:
    with pytest.raises(UnknownName) as refusal:
        viaduct_models("nosuch")
    assert str(refusal.value).count("There are:") == 1


def test_more_classes_than_anything_has_are_refused() -> None:
    with pytest.raises(BadValue, match="cannot have 999,999,999,999 classes"):
        viaduct_models("--classes", "999999999999")


def test_layers_of_no_network_are_refused() -> None:
    with pytest.raises(BadValue, match="--layers needs a network"):
        viaduct_models("--layers")


@pytest.mark.parametrize("words", [["resnet18_v1", "resnet34_v1"], ["--classes", "0"], ["--depth"]])
def test_wrong_arguments_exit_2(words: list[str]) -> None:
    assert viaduct_models(*words).exit_code == 2
