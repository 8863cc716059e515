"""Every shipped recipe loads; a recipe file of one's own is loaded, or refused with its line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from viaduct import models, recipes
from viaduct.errors import BadValue, UnknownName
from viaduct.recipes import LoadedRecipe, Recipe, load, names

FOLDER = Path(recipes.__file__).parent


def test_listing_every_recipe_imports_no_torch() -> None:
    script = "import sys; from viaduct.recipes import load, names; [load(name) for name in names()]; "
    script += "print(len(names()), 'torch' in sys.modules, 'tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(names())), "False", "False"]


def test_the_recipes_that_were_promised_are_there() -> None:
    promised = {"shapes_taster", "resnet56_cifar10", "resnet50_cifar10", "resnet50_cifar10_modern"}
    assert promised <= set(names())
    assert names() == sorted(names())
    assert not any(name.startswith("_") for name in names())


@pytest.mark.parametrize("name", names())
def test_a_recipe_loads_and_is_frozen(name: str) -> None:
    loaded = load(name)
    assert isinstance(loaded.recipe, Recipe)
    assert (loaded.name, loaded.file) == (name, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.recipe.epochs = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", names())
def test_a_recipe_says_what_it_is_and_how_to_run_it(name: str) -> None:
    loaded = load(name)
    assert loaded.summary.endswith(".")
    assert len(loaded.summary) < 110
    command = [line.split() for line in loaded.docstring.splitlines() if line.startswith("    viaduct train ")]
    assert command[0][:3] == ["viaduct", "train", name]
    assert ("--data" in command[0]) == loaded.recipe.data.needs_path


@pytest.mark.parametrize("name", names())
def test_a_recipe_fits_on_a_screen_and_names_no_device(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text()
    assert len(source.splitlines()) <= 40
    assert "device" not in source.split('"""')[2]


@pytest.mark.parametrize("name", names())
def test_a_recipe_trains_a_network_that_exists(name: str) -> None:
    assert load(name).recipe.model in models.names()


def test_the_modern_recipe_is_one_replace_away_from_the_books() -> None:
    source = (FOLDER / "resnet50_cifar10_modern.py").read_text()
    assert source.count("replace(") == 1
    assert "Recipe(" not in source


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("resnet5O_cifar10", "resnet50_cifar10"),
        ("resnet50-cifar10", "resnet50_cifar10"),
        ("Resnet56_cifar10", "resnet56_cifar10"),
        ("shape_taster", "shapes_taster"),
    ],
)
def test_a_typo_is_answered_with_the_closest_name(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        load(typed)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"no recipe called {typed!r}."
    assert lines[1].strip() == f"Closest is {meant!r}."
    assert f"`viaduct train --list` shows all {len(names())}." in str(caught.value)


@pytest.mark.parametrize("word", ["_fields", "_parts", "__init__"])
def test_a_file_that_is_no_recipe_cannot_be_named(word: str) -> None:
    with pytest.raises(UnknownName):
        load(word)


@pytest.fixture(autouse=True)
def nothing_stays_imported() -> Iterator[None]:
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if name.startswith("viaduct_recipe_") or name in ("neighbour_a", "neighbour_b"):
            del sys.modules[name]


def load_text(folder: Path, text: str) -> LoadedRecipe:
    file = folder / "mine.py"
    file.write_text(textwrap.dedent(text))
    return load(str(file))


GOOD = '''
    """My own network on shapes.

    More words.
    """
    from dataclasses import dataclass
    from viaduct.recipes import Recipe, Shapes

    @dataclass(frozen=True)
    class Network:
        width: "int" = 3

    def network(classes):
        return Network()

    recipe = Recipe(model=network, data=Shapes(global_batch=8, size=16), epochs=3)
'''


def test_a_file_of_the_user_is_a_recipe(tmp_path: Path) -> None:
    loaded = load_text(tmp_path, GOOD)
    assert (loaded.name, loaded.summary) == ("mine", "My own network on shapes.")
    assert loaded.file == (tmp_path / "mine.py").resolve()
    assert loaded.recipe.epochs == 3
    assert callable(loaded.recipe.model)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    load_text(tmp_path, GOOD)
    assert load_text(tmp_path, GOOD.replace("epochs=3", "epochs=45")).recipe.epochs == 45


def test_a_recipe_file_can_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_a.py").write_text("EPOCHS = 12\n")
    text = GOOD.replace("epochs=3", "epochs=EPOCHS").replace(
        "from dataclasses", "from neighbour_a import EPOCHS\n    from dataclasses"
    )
    assert load_text(tmp_path, text).recipe.epochs == 12


@pytest.mark.parametrize("path", ["nowhere/mine.py", "mine.py", "./"])
def test_a_file_that_does_not_exist_is_named(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadValue, match=r"there is no recipe file '.*'(.|\n)*--list"):
        load(path)


def test_a_file_without_a_recipe_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        BadValue, match=r"mine.py does not define `recipe`.\n  It needs a line such as: recipe = Recipe"
    ):
        load_text(tmp_path, "from viaduct.recipes import Recipe\nrecipes = []\n")


@pytest.mark.parametrize(("value", "kind"), [("{'model': 'resnet'}", "dict"), ("Recipe", "type")])
def test_a_recipe_of_another_type_is_called_what_it_is(tmp_path: Path, value: str, kind: str) -> None:
    with pytest.raises(BadValue, match=rf"mine.py defines `recipe` as a {kind}\."):
        load_text(tmp_path, f"from viaduct.recipes import Recipe\nrecipe = {value}\n")


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(BadValue) as caught:
        load_text(folder, text)
    return str(caught.value)


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    output = complaint(tmp_path, "one = 1\ntwo = = 2\n")
    assert "the recipe file failed: SyntaxError: invalid syntax" in output
    assert output.endswith(f"in {tmp_path / 'mine.py'}, line 2")


def test_an_error_inside_is_named_with_the_line_of_the_file_not_of_the_library(tmp_path: Path) -> None:
    output = complaint(tmp_path, "import json\n\nrecipe = json.loads('{')\n")
    assert "the recipe file failed: JSONDecodeError" in output
    assert output.endswith(f"in {tmp_path / 'mine.py'}, line 3")


def test_a_misspelt_field_is_named_with_its_line(tmp_path: Path) -> None:
    output = complaint(tmp_path, "from viaduct.recipes import Sgd\n\noptimizer = Sgd(learning_rate=0.1)\n")
    assert "unexpected keyword argument 'learning_rate'" in output
    assert output.endswith("line 3")


def test_a_value_out_of_range_is_named_with_its_line(tmp_path: Path) -> None:
    output = complaint(tmp_path, "from viaduct.recipes import Sgd\n\noptimizer = Sgd(lr=-1)\n")
    assert output.splitlines()[0] == "optimizer.lr is -1; it must be 0 or more."
    assert output.endswith(f"in {tmp_path / 'mine.py'}, line 3")


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    output = complaint(tmp_path, "import a_package_that_nobody_has\n")
    assert "ModuleNotFoundError: No module named 'a_package_that_nobody_has'" in output
    assert output.endswith("line 1")


def test_a_syntax_error_of_a_neighbour_is_not_blamed_on_a_line_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "neighbour_b.py").write_text("fine = 1\n" * 30 + "wrong = = 2\n")
    output = complaint(tmp_path, "import sys\nimport neighbour_b\n")
    assert "neighbour_b.py, line 31" in output
    assert output.endswith(f"in {tmp_path / 'mine.py'}, line 2")
