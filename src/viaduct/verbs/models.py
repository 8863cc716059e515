"""viaduct models"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viaduct.errors import BadValue
from viaduct.terminal import align_columns
from viaduct.verbs._grouped_help import AsJson

if TYPE_CHECKING:
    from viaduct.models.catalogue import Entry
    from viaduct.models.sizes import Part


def main(
    name: Annotated[str, typer.Argument(help="Show this network block by block; without it, list all.")] = "",
    classes: Annotated[
        int | None, typer.Option(help="Number of classes to count for.", show_default="the reference's", min=1)
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="With NAME: show layers instead of blocks.")] = False,
    source: Annotated[
        str,
        typer.Option(
            help="List networks of timm or torchvision that match NAME, such as 'convnext*'.", metavar="PACKAGE"
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the networks: parameters, multiplications, input size, the recipes that use them, and their source.

    Multiplications are those of convolutions and classifiers on one image; papers call them MACs or FLOPs.
    """
    if source:
        from viaduct.models.sources import list_names

        names = list_names(source, name)
        return print(json.dumps(names, indent=1) if as_json else "\n".join(names))
    if layers and not name:
        raise BadValue("--layers needs a network.", "Name one: `viaduct models resnet50_v1 --layers`.")
    if name:
        print_model(name, classes, layers, as_json)
    else:
        print_all(classes, as_json)
    return None


def print_all(classes: int | None, as_json: bool) -> None:
    from viaduct.models import check_classes
    from viaduct.models.catalogue import read_entries

    if classes is not None:
        check_classes(classes)
    recipes = list_recipes_by_model()
    rows = [build_row(name, entry, classes or entry.classes, recipes) for name, entry in read_entries().items()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    cells = [format_cells(row) for row in rows]
    lines = align_columns([("name", "classes", "parameters", "MACs", "input", "recipes"), *cells], text_columns=(0, 5))
    print(lines[0])
    heading = ""  # the reference that the following networks come from
    for row, line in zip(rows, lines[1:], strict=True):
        if row["source"] != heading:
            heading = row["source"]
            print(f"\n{heading}")
        print(line)


def print_model(name: str, classes: int | None, layers: bool, as_json: bool) -> None:
    from viaduct.models.catalogue import find_entry
    from viaduct.models.sources import PACKAGES

    package, colon, network = name.partition(":")
    if colon:
        raise BadValue(
            f"{name!r} is a network of another package; only the sizes of ours are known.",
            f"`viaduct models --source {package} {network}` looks for the name."
            if package in PACKAGES
            else "`viaduct models --source timm` lists timm's, --source torchvision torchvision's.",
        )
    entry = find_entry(name)
    from viaduct.models.sizes import measure  # torch is imported here

    sizes = measure(name, classes, layers)
    row = build_row(name, entry, sizes.classes, list_recipes_by_model())
    if as_json:
        print(json.dumps({**row, "parts": list(map(describe_part, sizes.parts))}, indent=1))
        return
    print(f"{name}: {row['source']}\n")
    total = ("total", "", "", f"{sizes.parameters:,}", f"{sizes.macs:,}")
    headings = ("part", "kind", "output", "parameters", "MACs")
    print(*align_columns([headings, *map(format_part, sizes.parts), total], text_columns=(0, 1)), sep="\n")
    print(f"\nOn one image of {format_input(row)}, {sizes.classes} classes; output is channels x height x width.")
    print(f"Recipes: {', '.join(row['recipes']) or 'none'}.")


def build_row(name: str, entry: Entry, classes: int, recipes: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "name": name,
        "classes": classes,
        "parameters": entry.parameters.at(classes),
        "parameters_in_training_only": entry.parameters_in_training_only.at(classes),
        "macs": entry.macs.at(classes),
        "input_pixels": [entry.input_size, entry.input_size],
        "recipes": recipes.get(name, []),
        "source": entry.source,
    }


def list_recipes_by_model() -> dict[str, list[str]]:
    from viaduct import recipes

    recipes_by_model: dict[str, list[str]] = {}
    for name in recipes.names():
        recipes_by_model.setdefault(str(recipes.load(name).recipe.model), []).append(name)
    return recipes_by_model


def format_cells(row: dict[str, Any]) -> tuple[str, ...]:
    figures = (f"{row['parameters']:,}", f"{row['macs']:,}")
    return (row["name"], str(row["classes"]), *figures, format_input(row), " ".join(row["recipes"]))


def format_input(row: dict[str, Any]) -> str:
    return "x".join(map(str, row["input_pixels"]))


def describe_part(part: Part) -> dict[str, Any]:
    """Return a part as --json shows it."""
    return {"multiplications" if name == "macs" else name: value for name, value in vars(part).items()}


def format_part(part: Part) -> tuple[str, ...]:
    output = "in training" if part.output is None else " x ".join(map(str, part.output))
    multiplications = f"{part.macs:,}" if part.macs else ""
    return (part.name, part.kind, output, f"{part.parameters:,}", multiplications)
