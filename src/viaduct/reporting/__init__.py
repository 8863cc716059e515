"""The only place that makes pages: records come in, one self-contained HTML file goes out.

    curves = Section("Curves", "", [LineChart("Loss", "step", "loss", [Series("training", steps, losses)])])
    page = Page("resnet50_cifar10", tiles=[Tile("top-1", "95.3 %")], sections=[curves])
    write_page(page, "runs/demo/report.html")

A page is tiles and sections; a section is parts. Every part is one file here and one template of the same
name, so a new kind of part is two files and a line below.
"""

from viaduct.reporting.code import Code
from viaduct.reporting.diff_view import Comment, DiffFile, DiffRow, DiffView
from viaduct.reporting.facts import Facts
from viaduct.reporting.heatmap import Heatmap
from viaduct.reporting.image_grid import ImageGrid, Picture
from viaduct.reporting.line_chart import LineChart, Series
from viaduct.reporting.page import Page, Part, Section, Tile, render_page, write_page
from viaduct.reporting.table import Table

__all__ = [
    "Code",
    "Comment",
    "DiffFile",
    "DiffRow",
    "DiffView",
    "Facts",
    "Heatmap",
    "ImageGrid",
    "LineChart",
    "Page",
    "Part",
    "Picture",
    "Section",
    "Series",
    "Table",
    "Tile",
    "render_page",
    "write_page",
]
