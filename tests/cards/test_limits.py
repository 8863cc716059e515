from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter

import pytest

from viaduct.cards.limits import LIMITS, SAME, Bilingual

ENGLISH_PROSE = re.compile(r"(?:\b[A-Za-z]{2,}[,:]? ){3}")  # three words in a row
FIELD = re.compile(r"\{[^{}]*\}")


def iterate_texts(name: str) -> Iterator[Bilingual]:
    limit = LIMITS[name]
    yield from (limit.reason, limit.action, limit.behaviour, limit.remedy)
    for case in limit.cases.values():
        yield from (text for text in (case.action, case.behaviour, case.remedy) if text != SAME)


def list_fields(sentence: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(sentence) if field}


@pytest.mark.parametrize("name", LIMITS)
def test_every_sentence_is_there_in_english_and_chinese(name: str) -> None:
    for english, chinese in iterate_texts(name):
        assert english.endswith((".", "…."))
        assert chinese.endswith("。")
        assert any("一" <= letter <= "鿿" for letter in chinese)
        assert list_fields(english) == list_fields(chinese)


@pytest.mark.parametrize("name", LIMITS)
def test_a_chinese_sentence_has_no_english_prose(name: str) -> None:
    for _, chinese in iterate_texts(name):
        assert ENGLISH_PROSE.search(FIELD.sub("", chinese)) is None, chinese


def test_a_case_has_its_own_sentences_and_else_the_limits() -> None:
    own_action, behaviour, own_remedy = LIMITS["cuda-left"].choose_sentences("precision", is_chinese=False)
    action, _, remedy = LIMITS["cuda-left"].choose_sentences("request", is_chinese=True)
    assert own_action == "{name} is made for CUDA."
    assert own_remedy.startswith("Write torch.amp.")
    assert behaviour.startswith("There is no CUDA")
    assert (action, remedy) == ("请求了 CUDA。", LIMITS["cuda-left"].remedy[1])


def test_the_limit_of_nccl_names_both_backends() -> None:
    assert "hccl on an NPU and cncl on an MLU" in LIMITS["nccl-left"].reason[0]
