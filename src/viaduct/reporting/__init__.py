"""HTML reports: a `Page` of parts becomes one self-contained HTML file.

    curves = Section("Curves", "", [LineChart("Loss", "step", "loss", [Series("training", steps, losses)])])
    page = Page("resnet50_cifar10", tiles=[Tile("top-1", "95.3 %")], sections=[curves])
    write_page(page, "runs/demo/report.html")

A page has tiles and sections, a section has parts. Each kind of part is a dataclass with a template (`line_chart.py`,
`line_chart.html`), and a script if it needs one (`run_curves.js`). Only this package makes HTML; the one exception is
the page of `viaduct serve` (handover/serving/page.py).
"""

# Names are imported here for import by other packages.
# ruff: noqa: F401
# mypy: implicit-reexport

from viaduct.reporting.bar_chart import BarChart
from viaduct.reporting.callout import Callout, Remark
from viaduct.reporting.code import Code
from viaduct.reporting.diff_view import Comment, DiffFile, DiffRow, DiffView
from viaduct.reporting.facts import Facts
from viaduct.reporting.flame_graph import FlameGraph, FlameNode
from viaduct.reporting.graph_drawing import GraphDrawing, Node
from viaduct.reporting.heatmap import Heatmap
from viaduct.reporting.histogram_pair import HistogramPair
from viaduct.reporting.histogram_steps import Histogram, HistogramSteps
from viaduct.reporting.image_grid import GridImage, ImageGrid
from viaduct.reporting.image_sheet import ImageSheet
from viaduct.reporting.line_chart import LineChart, RunCurves, Series
from viaduct.reporting.links import Link
from viaduct.reporting.named_bars import BarSeries, NamedBars
from viaduct.reporting.page import Page, Part, Section, Tile, render_page, write_page
from viaduct.reporting.parallel_plot import ParallelPlot, PlotAxis
from viaduct.reporting.scatter_chart import Level, Point, Roof, ScatterChart, Span
from viaduct.reporting.stacked_bars import BarGroup, StackedBars
from viaduct.reporting.table import Table, Value
from viaduct.reporting.tones import Tone
from viaduct.reporting.virtual_table import Block, DataColumn, VirtualTable
