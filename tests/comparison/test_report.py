"""The page says what the rows say: nothing is dropped, nothing refused looks good, nothing leaves the page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.drift_sample import (
    HOSTILE,
    ORIGIN,
    make_stored,
    measure_kind,
    sample_drift,
    sample_explanation,
    sample_rows,
    sample_sides,
)
from reporting.test_page import Elements
from viaduct.comparison import report, report_rows
from viaduct.comparison.records import Cause, Explanation, Origin, Pair, Role, Row
from viaduct.comparison.report import write_report
from viaduct.comparison.table import COLUMNS
from viaduct.comparison.thresholds import Thresholds

ROWS = sample_rows()
EXPLANATION = sample_explanation(ROWS)


def make_row(op: str, order: int, role: Role = "output") -> Row:
    tensor = make_stored(op, order, 0, role)
    return Row(Pair(1, tensor, tensor, op, op, "name"), measure_kind("good", 1), "good")


def page_of(path: Path, rows: list[Row] = ROWS, explanation: Explanation = EXPLANATION) -> str:
    write_report(path / "report.html", sample_drift(rows, explanation))
    return (path / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> str:
    return page_of(tmp_path_factory.mktemp("drift"))


def table_of(html: str) -> dict[str, list]:
    """The table's columns as the browser gets them."""
    found = json.loads(re.search(r'<script type="application/json" class="rows">(.*?)</script>', html, re.S)[1])
    return {
        column["name"]: column.get("numbers") or [column["words"][location] for location in column["places"]]
        for column in found["columns"]
    }


def details_of(html: str) -> dict[str, list[dict]]:
    return json.loads(re.search(r'<script type="application/json" class="details">(.*?)</script>', html, re.S)[1])


def test_every_row_and_every_column_of_the_csv_is_in_the_page(html):
    table = table_of(html)
    assert set(COLUMNS) <= set(table)
    assert {len(values) for values in table.values()} == {len(ROWS)}
    assert table["Result"] == [row.result for row in ROWS]
    assert table["TensorIndex"] == [row.tensor_index for row in ROWS]


def test_a_row_without_measures_says_nan_and_never_zero(html):
    table = table_of(html)
    for number, row in enumerate(ROWS):
        if row.measures is None:
            assert table["CosineSimilarity"][number] == "NaN"
            assert table["RelativeEuclideanDistance"][number] == "NaN"


def test_the_callout_has_origin_cause_and_advice(html):
    words = Elements(html).words
    for part in (EXPLANATION.headline, EXPLANATION.origin.why, "wrong BN epsilon (confidence 92%)", "Set eps=1e-5."):
        assert part in words


def test_the_origin_comes_first_then_what_is_bad_by_itself_and_the_good_last(html):
    order = report_rows.order_rows(ROWS, EXPLANATION.origin.row_index)
    results = [ROWS[number].result for number in order]
    assert order[0] == EXPLANATION.origin.row_index
    assert results == ["bad"] * 472 + ["refused", "flag", "new"] + ["good"] * 424
    follows = [bool(ROWS[number].follows_from) for number in order[:472]]
    assert follows == sorted(follows)
    first = re.search(r"<tbody>\s*<tr>\s*(<td.*?)</tr>", html[html.index('class="part virtual"') :], re.S)[1]
    assert "bad" in first
    assert f"{ORIGIN}:output:0" in first.replace("<wbr>", "")


def test_without_an_origin_the_bad_rows_still_come_first():
    order = report_rows.order_rows(ROWS, None)
    assert ROWS[order[0]].result == "bad"
    assert sorted(order) == list(range(len(ROWS)))


def test_the_counts_by_result_are_tiles(html):
    tiles = dict(re.findall(r'class="label">(\w+)</span>\s*<span class="value">([\d,]+)', html))
    assert tiles == {"good": "424", "bad": "472", "flag": "1", "refused": "1", "new": "1"}


def test_refused_rows_alone_are_not_called_good():
    gone = [row for row in ROWS if row.result == "refused"]
    assert report.choose_overall_tone(gone) == "warn"
    assert [tile.good for tile in report.make_tiles(gone) if tile.label == "good"] == [None]


def test_only_good_rows_are_called_good():
    assert report.choose_overall_tone([row for row in ROWS if row.result == "good"]) == "good"
    assert report.choose_overall_tone(ROWS) == "bad"


def test_the_page_links_to_no_other_file_but_the_csv(html):
    assert "http://" not in html
    assert "https://" not in html
    addresses = {attributes["href"] for tag, attributes in Elements(html).tags if tag == "a"}
    assert {address for address in addresses if not address.startswith("#")} == {"drift.csv"}


def test_a_hostile_name_never_becomes_markup(html):
    assert HOSTILE not in html
    assert "<img src=x" not in html
    assert HOSTILE in table_of(html)["LeftOp"]


def test_the_chart_shows_the_origins_step_and_leaves_out_inputs_that_are_outputs_elsewhere():
    shown = report.select_charted(ROWS, EXPLANATION.origin.row_index)
    assert {ROWS[n].tensor.step for n in shown} == {0}
    assert {ROWS[n].tensor.role for n in shown} == {"output", "grad_output"}
    assert EXPLANATION.origin.row_index in shown


def test_inputs_are_charted_where_nothing_else_was_dumped():
    inputs = [row for row in ROWS if row.tensor.role == "input"]
    assert len(report.select_charted(inputs, None)) == sum(row.tensor.step == 0 for row in inputs)


def test_an_origin_that_is_an_input_is_charted_all_the_same():
    index = next(n for n, row in enumerate(ROWS) if row.tensor.role == "input")
    assert index in report.select_charted(ROWS, index)


def test_the_stages_of_the_network_are_named_along_the_axis():
    forward = [row for row in ROWS if row.tensor.role == "output" and row.tensor.step == 0 and "." not in row.op[:6]]
    assert report.name_stages(forward)[:3] == ["conv1", "bn1", "maxpool"]
    shown = [ROWS[n] for n in report.select_charted(ROWS, None) if ROWS[n].tensor.role == "output"]
    labels = [span.label for span in report.make_spans(shown, report.number_positions(shown))]
    assert labels[:9] == ["conv1", "bn1", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc"]


def test_names_that_begin_alike_are_distinguished_by_their_second_part():
    rows = [make_row(f"stages.{stage}.conv", stage) for stage in range(4)]
    assert report.name_stages(rows) == ["stages.0", "stages.1", "stages.2", "stages.3"]


def test_the_backward_pass_and_the_parameters_have_stages_of_their_own():
    rows = [
        make_row("a", 0),
        make_row("a", 1, "grad_input"),
        make_row("a.w", 2, "gradient"),
        make_row("b.w", 2, "update"),
    ]
    assert [span.label for span in report.make_spans(rows, report.number_positions(rows))] == [
        "a",
        "backward",
        "parameters",
    ]


def test_parameters_of_one_order_stand_beside_each_other():
    assert report.number_positions(
        [make_row("a.w", 2, "update"), make_row("b.w", 2, "update"), make_row("b.w", 2, "gradient")]
    ) == [
        0,
        1,
        1,
    ]


def test_settings_without_a_value_are_not_shown(tmp_path):
    left, right = sample_sides(ROWS)
    assert "commit" not in report.make_side_facts("x", replace(left, settings={"commit": "", "seed": "1"})).values
    assert report.number_notes(["right: 2 files were left out.", "swapped?"], left, right) == {"note 1": "swapped?"}


def test_the_thresholds_of_the_types_that_occur_are_drawn():
    assert [(level.y, level.label) for level in report.list_threshold_levels(ROWS, None)] == [
        (1e-4, "threshold of float32")
    ]
    assert [level.y for level in report.list_threshold_levels(ROWS, Thresholds(euclid=0.1))] == [0.1]
    assert report.list_threshold_levels(ROWS, Thresholds(cosine=0.99)) == []


def test_a_chart_by_step_appears_with_the_second_step(html, tmp_path):
    assert "Along the steps" in html
    first = [row for row in ROWS if row.tensor.step == 0]
    assert "Along the steps" not in page_of(tmp_path, first, sample_explanation(first))


def test_without_an_origin_there_is_no_drawing_and_the_rest_stands(tmp_path):
    html = page_of(tmp_path, explanation=Explanation("no single origin: rounding accumulates.", None))
    assert "No single origin" in html
    assert "Around the origin" not in html
    assert 'class="part virtual"' in html


def test_nothing_to_compare_still_makes_a_page(tmp_path):
    gone = [row for row in ROWS if row.measures is None]
    html = page_of(tmp_path, gone, Explanation("nothing could be compared.", None))
    assert "Along the network" not in html
    assert table_of(html)["Result"] == ["refused", "new"]


def test_no_rows_at_all_still_make_a_page(tmp_path):
    assert "no rows" in page_of(tmp_path, [], Explanation("nothing could be compared.", None))


def test_further_origins_are_linked():
    origins = tuple(Origin("fc", "operator", 0, 0, row, "by itself") for row in (440, 441))
    links = report.make_links(ROWS, replace(EXPLANATION, further=origins))
    assert [link.address for link in links] == [
        f"#rows-{EXPLANATION.origin.row_index}",
        "#rows-440",
        "#rows-441",
        "drift.csv",
    ]
    assert links[1].text == f"also by itself: {ROWS[440].tensor_index}, step 0"
    assert len({link.text for link in links}) == 4, "an operator may have several tensors: no text twice"


def test_without_edges_the_drawing_shows_the_order_and_no_producers():
    drawing = report.draw_neighbourhood(replace(EXPLANATION, edges=()))
    assert drawing.title == "Operators in the order they ran"
    assert "does not show what feeds the origin" in drawing.text


def test_of_many_neighbours_a_few_are_drawn_and_the_others_counted():
    crowd = [replace(EXPLANATION.neighbours[0], op=f"n{number}") for number in range(10)]
    drawn, hidden = report.select_nearest(crowd)
    assert (len(drawn), hidden) == (4, 6)


def test_details_of_a_bad_row_lead_to_what_it_follows_from(html):
    details = details_of(html)
    number = next(n for n, row in enumerate(ROWS) if row.follows_from == ORIGIN and row.tensor.step == 1)
    (link,) = [block for block in details[str(number)] if block["kind"] == "link"]
    assert link == {
        "kind": "link",
        "text": f"follows from {ORIGIN}",
        "address": f"#rows-{EXPLANATION.origin.row_index}",
    }


def test_details_hold_histograms_distances_errors_and_the_places_of_nan(html):
    details = details_of(html)
    number = next(n for n, row in enumerate(ROWS) if row.op == "head.nan")
    blocks = {block["kind"]: block for block in details[str(number)]}
    assert {"histograms", "facts", "table"} <= set(blocks)
    assert blocks["facts"]["values"]["NaN or Inf of npu"] == "(0, 3, 1, 2), (1, 7, 3, 3)"


def test_five_thousand_rows_stay_below_five_megabytes(tmp_path):
    rows = sample_rows(12, most=5000)
    html = page_of(tmp_path, rows, sample_explanation(rows))
    assert len(table_of(html)["Result"]) == len(rows) > 5000
    assert len(html.encode()) < 5_000_000
    assert len(details_of(html)) <= report_rows.MAX_DETAILS + report_rows.SAMPLE + 36


@pytest.mark.parametrize(
    ("left", "right", "names"),
    [
        ("runs/npu/dump", "runs/gpu/dump", ("npu", "gpu")),
        ("a/left.npz", "b/right.npz", ("left.npz", "right.npz")),
        ("same", "same", ("left", "right")),
        ("dump", "runs/gpu/dump", ("left", "right")),
    ],
)
def test_sides_are_named_by_the_parts_in_which_their_paths_differ(left, right, names):
    found = report.shorten_paths(Path(left), Path(right))
    assert len(set(found)) == 2
    assert found == names


def test_other_explanations_are_listed_with_their_confidence(tmp_path):
    causes = (*EXPLANATION.causes, Cause(HOSTILE, HOSTILE, HOSTILE, confidence=0.1))
    html = page_of(tmp_path, explanation=replace(EXPLANATION, causes=causes))
    assert ">20%<" in html
    assert HOSTILE not in html
