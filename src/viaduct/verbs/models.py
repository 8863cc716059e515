"""viaduct models"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.errors import BadValue

if TYPE_CHECKING:
    from viaduct.models.sizes import Part, Sizes


def main(
    name: Annotated[str, typer.Argument(help="One network, part by part; left out: all of them.")] = "",
    classes: Annotated[
        int | None, typer.Option(help="Count for this many classes.", show_default="as the reference has", min=1)
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="With NAME: every layer instead of blocks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the networks: parameters, multiplications, input size, the recipes that use them, and their source.

    Multiplications are those of convolutions and classifiers on one picture; papers call them MACs or FLOPs.
    """
    if layers and not name:
        raise BadValue("--layers without a network.", "Name one: `viaduct models resnet50_v1 --layers`.")
    if name:
        show_one(name, classes, layers, as_json)
    else:
        show_all(classes, as_json)


def show_all(classes: int | None, as_json: bool) -> None:
    from viaduct import models
    from viaduct.models.sizes import measure

    users = recipes_by_model()
    rows = [summary(measure(name, classes), users) for name in models.names()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    cells = [cells_of(row) for row in rows]
    lines = aligned([("name", "classes", "parameters", "MACs", "input", "recipes"), *cells], words=(0, 5))
    print(lines[0])
    source = ""
    for row, line in zip(rows, lines[1:], strict=True):
        if row["source"] != source:
            source = row["source"]
            print(f"\n{source}")
        print(line)


def show_one(name: str, classes: int | None, layers: bool, as_json: bool) -> None:
    from viaduct.models.sizes import measure

    sizes = measure(name, classes, layers)
    row = summary(sizes, recipes_by_model())
    if as_json:
        print(json.dumps({**row, "parts": [vars(part) for part in sizes.parts]}, indent=1))
        return
    print(f"{name}: {row['source']}\n")
    total = ("total", "", "", f"{sizes.parameters:,}", f"{sizes.multiplications:,}")
    heads = ("part", "kind", "output", "parameters", "MACs")
    print(*aligned([heads, *map(part_cells, sizes.parts), total], words=(0, 1)), sep="\n")
    print(f"\nOn one picture of {row['input']}, {sizes.classes} classes; output is channels x height x width.")
    print(f"Recipes: {', '.join(row['recipes']) or 'none'}.")


def summary(sizes: Sizes, users: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "name": sizes.name,
        "classes": sizes.classes,
        "parameters": sizes.parameters,
        "parameters_in_training_only": sizes.parameters_in_training_only,
        "macs": sizes.multiplications,
        "input": f"{sizes.input_size}x{sizes.input_size}",
        "recipes": users.get(sizes.name, []),
        "source": source_of(sizes.family),
    }


def recipes_by_model() -> dict[str, list[str]]:
    from viaduct import recipes

    users: dict[str, list[str]] = {}
    for name in recipes.names():
        users.setdefault(str(recipes.load(name).recipe.model), []).append(name)
    return users


def source_of(family: str) -> str:
    """The first line of what the family's file says of itself."""
    from viaduct import models

    return (models.module_of(family).__doc__ or "").split("\n")[0].rstrip(".")


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    figures = (f"{row['parameters']:,}", f"{row['macs']:,}")
    return (row["name"], str(row["classes"]), *figures, row["input"], " ".join(row["recipes"]))


def part_cells(part: Part) -> tuple[str, ...]:
    output = "in training" if part.output is None else " x ".join(map(str, part.output))
    multiplications = f"{part.multiplications:,}" if part.multiplications else ""
    return (part.name, part.kind, output, f"{part.parameters:,}", multiplications)


def aligned(rows: Sequence[Sequence[str]], words: Sequence[int]) -> list[str]:
    """One line a row; columns of words stand to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<" if index in words else ">" for index in range(len(widths))]
    return [
        "  ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)).rstrip()
        for row in rows
    ]
