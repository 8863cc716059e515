"""The user's rules for which operators belong together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comparison.sample_dumps import names, side, tensor
from viaduct.comparison.align import align
from viaduct.comparison.rules import read_rules
from viaduct.errors import BadData, BadValue, UnknownName, ViaductError


def rules_file(tmp_path: Path, text: object, name: str = "rules.json") -> Path:
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_rules_map_ignore_and_shift(tmp_path: Path) -> None:
    rules = {
        "map": {"net/block{n}/conv{m}": "layer{n}.conv{m}", "logits": "fc", "extra": "*", "lost": "nowhere",
                "deep/{x...}": "{x}"},
        "ignore": {"left": ["*/counter"], "right": ["save*"]},
        "step_offset": 1,
    }  # fmt: skip
    ours = ["net/block3/conv2", "logits", "extra", "lost", "deep/a/b", "net/counter"]
    theirs = ["layer3.conv2", "fc", "a/b", "save_1"]
    alignment = align(
        side(tensor(op, order=n, shape=(n + 2,)) for n, op in enumerate(ours)),
        side(tensor(op, order=n, step=1, shape=(n + 20,)) for n, op in enumerate(theirs)),
        rules=rules_file(tmp_path, rules),
    )
    assert names(alignment) == [
        ("net/block3/conv2", "layer3.conv2"), ("logits", "fc"), ("extra", None), ("lost", None), ("deep/a/b", "a/b"),
    ]  # fmt: skip
    assert [p.matched_by for p in alignment.pairs] == ["rules", "rules", "none", "none", "rules"]
    assert alignment.pairs[2].right_op == "*"
    assert "left out by the rules: 1 tensors of the left, 1 of the right" in alignment.notes


def test_msprobes_own_map_is_read(tmp_path: Path) -> None:
    text = (
        "# mine\nModule.conv1.Conv2d.forward.0.input.0: Module.stem.Conv2d.forward.1.input.0\n"
        "'Functional.relu.2.forward.output.0': \"Functional.gelu.0.forward.output.0\"\nplain: other # why\n"
    )
    rules = read_rules(rules_file(tmp_path, text, "map.yaml"))
    assert rules.find_partner("conv1", 0) == ("stem", 1)
    assert rules.find_partner("Functional.relu.2", 0) == ("Functional.gelu.0", 0)
    assert rules.find_partner("plain", 3) == ("other", 3)
    assert rules.find_partner("unheard", 0) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", BadData), ("[]", BadValue), ('{"maps": {}}', UnknownName), ('{"map": {"a": 1}}', BadValue),
        ('{"map": []}', BadValue), ('{"map": {"a{n}{n}": "b"}}', BadValue), ('{"map": {"a{n}": "b{m}"}}', BadValue),
        ('{"ignore": {"middle": []}}', BadValue), ('{"ignore": [1]}', BadValue), ('{"ignore": "x"}', BadValue),
        ('{"step_offset": "1"}', BadValue), ('{"step_offset": true}', BadValue), ("[" * 100_000, BadData),
    ],
)  # fmt: skip
def test_wrong_rules_are_refused(tmp_path: Path, text: str, error: type[ViaductError]) -> None:
    with pytest.raises(error, match=r"rules\.json"):
        read_rules(rules_file(tmp_path, text))


@pytest.mark.parametrize("entry", [{"{a": "b"}, {"a}": "b"}, {"a": "{b"}, {"a{n}/{": "b{n}"}, {"{1}": "b"}])
def test_an_unpaired_brace_is_refused(tmp_path: Path, entry: dict[str, str]) -> None:
    with pytest.raises(BadValue, match="has a brace that does not belong"):
        read_rules(rules_file(tmp_path, json.dumps({"map": entry})))


def test_nested_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="line 2"):
        read_rules(rules_file(tmp_path, "a: b\nc:\n  d: e\n", "map.yaml"))
    with pytest.raises(BadData, match="no such file"):
        read_rules(tmp_path / "none.json")


def test_the_rules_in_the_documentation_are_rules(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare-inputs.md").read_text()
    rules = read_rules(rules_file(tmp_path, page.split("```json")[1].split("```")[0]))
    assert rules.find_partner("resnet/block3/conv1", 0) == ("layer3.conv1", 0)
    assert rules.find_partner("scope/a/b.c", 0) == ("a/b.c", 0)
    assert rules.find_partner("TransData_1", 0) == ("*", 0)
    assert rules.ignores("bn.num_batches_tracked", left=True)
    assert not rules.ignores("bn.num_batches_tracked", left=False)
    assert rules.step_offset == 1
