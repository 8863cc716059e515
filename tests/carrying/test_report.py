"""Report of `viaduct carry`: what was equal, and what was not compared, not checked or not run."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from viaduct.carrying import report
from viaduct.carrying.agreement import Agreement, ValueKind, ValuePair, judge
from viaduct.carrying.carry import choose_verdict
from viaduct.carrying.doubts import find_differing_results
from viaduct.carrying.sentences import make_headline
from viaduct.carrying.written_files import WrittenFile
from viaduct.reporting import Page, Section, render_page

EQUAL = [
    ValuePair("loss", "loss", 0, 0, 1.0, 1.0, 0.0),
    ValuePair("gradient", "fc.weight", 0, 0, 1.0, 1.0, 0.0),
    ValuePair("weight", "fc.weight", 0, None, 1.0, 1.0, 0.0),
]


def make_result(pairs: list[ValuePair], limits: str = "error", finished: bool = True, **more: Any) -> Any:
    """Return a result with only the fields that the report's sentences use."""
    agreement = judge(pairs)
    run = SimpleNamespace(
        is_finished=finished,
        name="original",
        summary=SimpleNamespace(steps=1),
        observations=SimpleNamespace(ranks=[SimpleNamespace(losses=[[1.0]])]),
    )
    verdicts = {"same": "agrees", "rounding": "agrees", "differ": "differs", "unsure": "not proved"}
    made = {
        "agreement": agreement,
        "verdict": verdicts[agreement.verdict],
        "request": SimpleNamespace(to="npu", limits=limits, ranks=1, lang="en"),
        "doubts": [],
        "original": run,
        "golden_run": run,
        "migrated": SimpleNamespace(**{**vars(run), "name": "migrated"}),
        "met_limits": [],
        "idle_optimizers": [],
        "ineffective_settings": [],
        "written_files": [],
        "further_results": None,
    }
    return SimpleNamespace(**{**made, **more})


def html_of(sections: list[Section]) -> str:
    html = render_page(Page("x", sections=sections))
    return html[html.index("<main") : html.index("</main>")].replace("<wbr>", "")


def test_a_kind_that_was_not_seen_is_not_reported_to_agree() -> None:
    losses_only = [pair for pair in EQUAL if pair.kind == "loss"]
    tile = report.make_agreement_tile(judge(losses_only), "weight")
    assert (tile.value, tile.note, tile.good) == ("not seen", "not compared", None)
    assert make_headline(make_result(losses_only)) == "Agrees on the NPU stand-in: 1 loss of 1 step is exactly equal."


def test_the_headline_claims_what_was_compared_and_nothing_more() -> None:
    verdict = "Agrees on the NPU stand-in: 1 loss of 1 step, 1 gradient of the first step and 1 tensor at the end "
    assert make_headline(make_result(EQUAL)) == verdict + "are exactly equal."
    assert (
        make_headline(make_result(EQUAL, agreement=Agreement("rounding", EQUAL))) == verdict + "agree up to rounding."
    )
    hidden = [replace(pair, error=0.6, noise=1.0, allowed=17.0) if pair.kind == "weight" else pair for pair in EQUAL]
    assert "tensor" not in make_headline(make_result(EQUAL, agreement=Agreement("rounding", hidden)))
    chinese = make_result(EQUAL)
    chinese.request.lang = "zh"
    assert make_headline(chinese) == "一致:在 NPU 替身上,1 个损失、第一步的 1 个梯度、结束时的 1 个张量完全相等。"


def test_an_unsure_agreement_calls_nothing_bad() -> None:
    other = [replace(pair, error=0.01) for pair in EQUAL]
    unsure = make_result(EQUAL, agreement=Agreement("unsure", other), verdict="not proved")
    tile = report.make_agreement_tile(unsure.agreement, "gradient")
    assert (tile.label, tile.value, tile.good) == ("gradients that are equal", "0 of 1", None)
    assert "bad" not in html_of(report.make_layer_sections(unsure))
    differing = make_result(EQUAL, agreement=Agreement("differ", other), verdict="differs")
    assert "bad" in html_of(report.make_layer_sections(differing))


def test_what_is_mostly_rounding_neither_agrees_nor_differs() -> None:
    noisy = replace(EQUAL[1], error=0.6, noise=1.0, allowed=17.0)
    tile = report.make_agreement_tile(Agreement("rounding", [EQUAL[0], noisy, replace(EQUAL[1], name="b")]), "gradient")
    assert (tile.value, tile.note, tile.good) == ("1 of 1", "1 of 2 not judged: mostly rounding", None)


@pytest.mark.parametrize(
    ("limits", "value", "words"),
    [
        ("off", "not checked", "Not checked: --limits off."),
        ("off,float64=warn", "0", "Only float64 was checked."),
        ("error,float64=off", "0", "Not checked: float64."),
    ],
)
def test_limits_that_were_off_are_not_reported_to_be_unmet(limits: str, value: str, words: str) -> None:
    tile = report.make_limits_tile(make_result(EQUAL, limits))
    assert (tile.value, tile.good) == (value, None)
    assert words in report.describe_no_limit(make_result(EQUAL, limits))


def test_limits_of_a_run_that_ended_early_or_never_began_are_not_called_met_or_good() -> None:
    early = make_result(EQUAL, finished=False)
    assert (report.make_limits_tile(early).good, report.make_limits_tile(early).note) == (None, "before the run ended")
    never = make_result(EQUAL, migrated=None)
    assert (report.make_limits_tile(never).value, report.make_steps_tile(never).value) == ("not run", "not run")
    assert report.make_limits_tile(make_result(EQUAL)).good is True


def test_losses_are_equal_only_if_there_are_some() -> None:
    assert not report.has_equal_losses(make_result([pair for pair in EQUAL if pair.kind != "loss"]))
    html = html_of(report.make_loss_sections(make_result(EQUAL)))
    assert "Exactly equal, step by step" in html
    assert html.count('class="line-0"') + html.count('class="line-1"') <= 1, "one line, not two on each other"


def test_equal_layers_are_called_equal_without_a_chart_or_an_empty_heading() -> None:
    html = html_of(report.make_layer_sections(make_result(EQUAL)))
    assert "named-bars" not in html
    assert html.count("<span>equal</span>") + html.count(">equal</td>") == 2
    assert ">0<" not in html
    assert 'scope="col"></th>' not in html
    assert '"number"></th>' not in html


def test_the_chart_of_layers_has_their_names_and_no_bar_for_what_is_equal() -> None:
    def layer(name: str, gradient: float, weight: float) -> list[ValuePair]:
        kinds: list[tuple[ValueKind, float]] = [("gradient", gradient), ("weight", weight)]
        return [ValuePair(kind, name, 0, 0 if kind == "gradient" else None, 1.0, 1.0, error) for kind, error in kinds]

    pairs = [EQUAL[0], *layer("stem.conv", 0.0, 0.0), *layer("layer1.0.bn1", 0.0, 0.02), *layer("fc", 0.3, math.inf)]
    html = html_of(report.make_layer_sections(make_result(pairs)))
    chart = html[html.index("named-bars") : html.index("</figure>")]
    assert chart.count("<dt>") == 2
    assert "<dt>layer1.0.bn1</dt>" in chart
    assert "stem.conv" not in chart
    assert chart.count("--length") == 2
    assert "2 of 3 layers differ. 1 layer without a bar: all compared values are equal." in chart
    table = html[html.index("</figure>") :]
    assert table.count("stem.conv") == table.count("layer1.0.bn1") == 1, "no name twice"


@pytest.mark.parametrize("verdict", ["same", "differ"])
def test_files_of_the_user_that_changed_meanwhile_leave_nothing_proved(verdict: Any) -> None:
    changed = SimpleNamespace(summary=SimpleNamespace(changed_originals=["/data/large.bin"]))
    untouched = SimpleNamespace(summary=SimpleNamespace(changed_originals=[]))
    agreement = Agreement(verdict, EQUAL)
    made = make_result(EQUAL, agreement=agreement, original=changed, migrated=untouched, repetitions={})
    made.doubts = [*find_differing_results(made)]
    assert [doubt.items for doubt in made.doubts] == [["/data/large.bin"]]
    assert choose_verdict(made) == "not proved"
    assert not [*find_differing_results(make_result(EQUAL, original=untouched, migrated=untouched, repetitions={}))]


def test_a_written_file_within_rounding_is_not_called_exactly_equal() -> None:
    files = [WrittenFile("a.pt", "rounding", "2 tensors within rounding", 2)]
    assert report.describe_closeness(make_result(EQUAL)) == "exactly, in all that was compared"
    assert "files within rounding" in report.describe_closeness(make_result(EQUAL, written_files=files))


def test_each_tensor_of_a_layer_has_its_own_tolerance() -> None:
    bad = replace(EQUAL[1], error=1e-3, noise=1e-5, allowed=1e-4)
    fine = replace(EQUAL[2], error=1e-3, noise=1e-3, allowed=1e-2)
    text, verdict = report.judge_layer({"gradient": bad, "weight": fine})
    assert (getattr(text, "text", None), verdict) == ("1.0e-04 / 1.0e-02", "bad")


def test_the_headline_counts_only_limits_at_which_the_card_refuses() -> None:
    limits = [{"mode": "error"}, {"mode": "warn"}]
    result = make_result(EQUAL, verdict="could not run", met_limits=limits, failed_run=None)
    assert make_headline(result) == "Could not run: the card would refuse it, 1 documented limit is met."
