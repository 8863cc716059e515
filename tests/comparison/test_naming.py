"""Steps, patterns, operators and file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.comparison.naming import (
    FileNames,
    is_plain_file_name,
    is_step_folder,
    normalise_operator,
    order_inputs,
    parse_patterns,
    parse_steps,
    remove_wrappers,
)
from viaduct.errors import BadValue


def test_other_names_with_step_are_no_folders_of_steps(tmp_path: Path) -> None:
    steps = ["step_000005", "step_1234567", ".step_000005.host-1-2.part"]
    others = ["step_by_step", "my_step_000005", "step_5", ".step_000005"]
    for name in [*steps, *others]:
        (tmp_path / name).mkdir()
    assert [is_step_folder(tmp_path / name) for name in [*steps, *others]] == [True] * 3 + [False] * 4


def test_steps_are_written_with_commas_or_bars() -> None:
    for text in ("0,5,10-12", "0|5|10-12", " 0, 5 |10-12"):
        steps = parse_steps(text)
        assert [step for step in range(20) if step in steps] == [0, 5, 10, 11, 12]
        assert steps.last == 12
    assert 7 in parse_steps([3, 7])
    assert 7 in parse_steps(7)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "5-3", "4-4", "1.5", "٣", "1-2-3", "9" * 13])
def test_text_that_is_no_list_of_steps_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="--dump-steps"):
        parse_steps(text, "--dump-steps")


def test_a_list_has_at_most_a_hundred_entries() -> None:
    assert parse_steps(range(100)).last == 99
    with pytest.raises(BadValue, match="101 entries"):
        parse_steps(range(101))


def test_steps_that_were_not_reached_are_named_as_ranges() -> None:
    assert parse_steps("0,5,10-14").describe_missing([0, 11]) == "5, 10, 12-14"
    assert parse_steps("0,5").describe_missing([0, 5]) == ""


def test_patterns_match_whole_names() -> None:
    only = parse_patterns("layer3.*, fc")
    assert "layer3.0.conv1" in only
    assert "fc" in only
    assert "layer30.conv" not in only
    assert "fc.weight" not in only
    assert "anything" in parse_patterns(None)
    with pytest.raises(BadValue, match="is empty"):
        parse_patterns(" , ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten::cudnn_batch_norm", "aten::native_batch_norm"),
        ("aten::convolution_overrideable", "aten::convolution"),
        ("aten::relu_", "aten::relu"),
        ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention"),
    ],
)
def test_an_operator_has_one_name_on_all_devices(one: str, other: str) -> None:
    assert normalise_operator(one) == normalise_operator(other)


def test_wrappers_are_removed_from_names() -> None:
    assert remove_wrappers("layer1._orig_mod.0._checkpoint_wrapped_module.conv") == "layer1.0.conv"


def test_hostile_names_become_safe_and_distinct_file_names() -> None:
    names = ["../../etc/passwd", "a/b", "a_b", "a b", ".hidden", "A", "a", "ü" * 300, "ü" * 301, "nul\0", "a\nb", "%2F"]
    made = [FileNames().make_unique(name) for name in names]
    files = FileNames()
    together = [files.make_unique(name) for name in names] + [files.make_unique("a/b")]
    assert len({name.lower() for name in together}) == len(together)
    for name in made:
        assert is_plain_file_name(name)
        assert not name.startswith(".")
        assert len(name.encode()) < 200


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b", None, 3])
def test_a_path_is_no_plain_file_name(name: object) -> None:
    assert not is_plain_file_name(name)


def test_inputs_of_batch_norms_backward_kernels_are_in_one_order() -> None:
    assert order_inputs("aten::cudnn_batch_norm_backward", ["x", "gradient", "weight"]) == ["gradient", "x", "weight"]
    assert order_inputs("aten::native_batch_norm_backward", ["gradient", "x", "weight"]) == ["gradient", "x", "weight"]


@pytest.mark.parametrize("operator", ["cudnn_batch_norm_backward", "native_batch_norm_backward"])
def test_the_order_of_inputs_is_that_of_torchs_schema(operator: str) -> None:
    torch = pytest.importorskip("torch")
    names = [argument.name for argument in getattr(torch.ops.aten, operator).default._schema.arguments]
    assert order_inputs(operator, names)[:3] in (["grad_out", "input", "weight"], ["grad_output", "input", "weight"])
