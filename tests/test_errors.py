"""The form of messages, and the closest name that an unknown one is answered with."""

from __future__ import annotations

import pytest

from viaduct.errors import LostRank, UnknownName, ViaductError, fold_lookalikes, is_out_of_memory


def test_a_message_has_its_hints_on_indented_lines() -> None:
    assert str(ViaductError("it failed.", "Try this.", "Or that.")) == "it failed.\n  Try this.\n  Or that."


@pytest.mark.parametrize(("name", "closest"), [("resnet5O", "resnet50"), ("RESNET50", "resnet50"), ("a-b", "a_b")])
def test_a_name_with_mistaken_characters_is_refused_with_the_right_one(name: str, closest: str) -> None:
    assert f"Closest is {closest!r}." in str(UnknownName("model", name, ["resnet50", "a_b", "vgg16"]))


def test_a_name_like_no_other_is_refused_with_all_names() -> None:
    assert "There are: cpu, cuda." in str(UnknownName("device", "toaster", ["cpu", "cuda"]))


def test_lookalikes_are_folded_and_other_characters_are_not() -> None:
    assert fold_lookalikes("O0Il1-_") == "0011" + "1__"
    assert fold_lookalikes("abc") == "abc"


@pytest.mark.parametrize(
    "text", ["CUDA out of memory.", "DefaultCPUAllocator: can't allocate memory", "not enough memory"]
)
def test_each_devices_message_about_lack_of_memory_is_recognised(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))
    assert is_out_of_memory(MemoryError())


def test_another_error_is_no_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_a_lost_rank_exits_with_the_code_of_a_temporary_failure() -> None:
    assert (LostRank.exit_code, ViaductError.exit_code) == (75, 2)
