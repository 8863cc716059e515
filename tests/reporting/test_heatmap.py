"""The confusion matrix says what was taken for what, however many classes there are."""

import numpy as np
import pytest

from viaduct.reporting import Heatmap, Page, Section, render_page


def html_of(heatmap: Heatmap) -> str:
    return render_page(Page("x", sections=[Section("s", "", [heatmap])]))


def classes(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


def test_rows_are_the_truth_and_columns_the_prediction():
    html = html_of(Heatmap("m", ["cat", "dog"], [[966, 34], [7, 993]]))
    assert "cat taken for dog: 34 of 1,000 (3.4\u00a0%)" in html
    assert "dog taken for cat: 7 of 1,000 (0.7\u00a0%)" in html
    assert "cat recognised: 966 of 1,000 (96.6\u00a0%)" in html


def test_colour_is_the_share_of_the_row_and_not_the_count():
    rows = Heatmap("m", ["a", "b"], [[1, 0], [500, 500]]).drawing().rows
    assert rows[0][0].tint == 1
    assert rows[1][0].tint == pytest.approx(0.5**0.5, abs=1e-3)


def test_a_class_that_never_occurred_is_a_pale_row():
    rows = Heatmap("m", ["a", "b"], [[0, 0], [1, 1]]).drawing().rows
    assert [cell.tint for cell in rows[0]] == [0, 0]


@pytest.mark.parametrize(("count", "numbers"), [(20, True), (21, False)])
def test_numbers_are_in_the_cells_up_to_twenty_classes(count, numbers):
    drawing = Heatmap("m", classes(count), np.eye(count, dtype=int) * 9).drawing()
    assert bool(drawing.rows) is numbers
    assert bool(drawing.image) is not numbers


def test_a_thousand_classes_stay_a_small_page_and_name_the_worst_mistake():
    counts = np.eye(1000, dtype=int) * 40
    counts[3, 999] = 10
    html = html_of(Heatmap("m", classes(1000), counts))
    assert "c3 taken for c999: 10 of 50 (20.0\u00a0%)" in html
    assert len(html) < 300_000


def test_a_class_called_script_is_harmless():
    for count in (1, 30):
        html = html_of(Heatmap("m", ["<script>"] * count, np.ones((count, count), dtype=int)))
        assert "<script>\n" in html, "the page's own"
        assert html.count("<script>") == 1


def test_counts_that_do_not_fit_the_labels_are_refused():
    with pytest.raises(ValueError, match="2 labels need a square"):
        Heatmap("m", ["a", "b"], [[1, 2, 3], [4, 5, 6]])
