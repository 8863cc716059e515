"""Side-by-side diffs: marks, remarks, safety."""

from __future__ import annotations

from viaduct.reporting import Comment, DiffFile, DiffRow, DiffView, Page, Section, render_page
from viaduct.reporting.diff_view import MAX_UNFOLDED

HOSTILE = "</script><script>alert('x')</script>"


def html(*files: DiffFile) -> str:
    return render_page(Page("x", sections=[Section("Changes", "", [DiffView(files)])]))


def row(text: str = "x", *comments: Comment) -> DiffRow:
    return DiffRow("changed", 3, 4, [("f(", False), (text, True)], [("g(", False)], comments)


def test_changed_pieces_are_marked_on_their_side() -> None:
    assert '<td class="diff-old">f(<del>x</del></td>' in html(DiffFile("a.py", [row()]))


def test_text_from_outside_never_becomes_markup() -> None:
    remark = Comment(HOSTILE, HOSTILE, HOSTILE, place=HOSTILE)
    page = html(DiffFile(HOSTILE, [row(HOSTILE, remark)], HOSTILE))
    assert "alert('x')" not in page
    assert page.count("<script>") == html(DiffFile("a", [row()])).count("<script>")


def test_lines_left_out_are_counted() -> None:
    page = html(DiffFile("a.py", [1, row(), 20]))
    assert ">1 unchanged line<" in page
    assert ">20 unchanged lines<" in page


def test_a_remark_on_the_file_needs_no_line() -> None:
    page = html(DiffFile("a.py", [DiffRow("same", comments=[Comment("not Python", "engine", "manual review")])]))
    assert "not Python" in page
    assert '<tr class="diff-same">' not in page


def test_counts_are_in_the_heading_of_a_file() -> None:
    page = html(DiffFile("a.py", [row("x", Comment("m", "r", "advice"), Comment("n", "r", "changed"))]))
    assert "1 advice, 1 changed" in page


def test_only_the_first_files_are_unfolded() -> None:
    page = html(*(DiffFile(f"{number}.py", [row()]) for number in range(MAX_UNFOLDED + 5)))
    assert page.count('<details class="diff-file" open>') == MAX_UNFOLDED
    assert page.count('<details class="diff-file"') == MAX_UNFOLDED + 5


def test_nothing_to_show_is_reported() -> None:
    assert "nothing to show" in html()
