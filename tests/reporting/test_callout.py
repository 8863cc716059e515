"""Callouts: a headline and its remarks."""

from __future__ import annotations

from viaduct.reporting import Callout, Page, Remark, render_page


def test_remarks_of_one_name_are_together_under_it():
    html = render_page(
        Page("x", lead=[Callout("good", "h", [Remark("Note", "a"), Remark("Why", "b"), Remark("Note", "c")])])
    )
    assert html.count("<dt>Note</dt><dd>a</dd><dd>c</dd>") == 1
    assert html.count("<dt>") == 2
