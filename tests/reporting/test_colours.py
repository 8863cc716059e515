"""The style sheet's colours can be read, in both themes."""

import re
from importlib.resources import files

import pytest

from viaduct.reporting.line_chart import COLOURS

SHEET = files("viaduct.reporting").joinpath("page.css").read_text(encoding="utf-8")
PAIRS = dict(re.findall(r"--([\w-]+): (light-dark\(#\w{6}, #\w{6}\));", SHEET))
LINES = [name for name in PAIRS if name.startswith("line-")]


def luminance(colour: str) -> float:
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """WCAG's measure: 1 is no difference, 4.5 is enough for text, 3 for lines."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def colour(name: str, theme: int) -> str:
    return re.findall(r"#\w{6}", PAIRS[name])[theme]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "soft", "accent", "good", "bad", "warn", "new", "muted"])
@pytest.mark.parametrize("ground", ["ground", "surface"])
def test_text_has_enough_contrast(name, ground, theme):
    assert contrast(colour(name, theme), colour(ground, theme)) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", LINES)
def test_lines_have_enough_contrast(name, theme):
    assert contrast(colour(name, theme), colour("surface", theme)) >= 3


def test_there_are_as_many_colours_as_the_charts_count_on():
    assert len(LINES) == COLOURS


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_numbers_can_be_read_on_every_tint_of_a_heatmap(theme):
    """On deep ground (from 0.7 on) they are white; below it they have the text's colour."""
    for percent in range(101):
        ground = mix(colour("heat", theme), colour("surface", theme), percent / 100)
        text = "#ffffff" if percent >= 70 else colour("ink", theme)
        assert contrast(text, ground) >= 3.5, f"{percent} %"


def mix(over: str, under: str, share: float) -> str:
    channels = [(int(over[i : i + 2], 16), int(under[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(top * share + bottom * (1 - share)):02x}" for top, bottom in channels)
