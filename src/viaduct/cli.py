"""The table of verbs; the only place where an error becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any, NoReturn

import typer
import typer.core
import typer.main

from viaduct import __version__
from viaduct.errors import ViaductError
from viaduct.extras import explain_import_error

# Verb -> its line in `viaduct --help`. The module is imported only when the verb is called.
VERBS = {
    "train": "Train a recipe, or continue a run that was interrupted.",
    "evaluate": "Measure a run's checkpoints on the validation pictures.",
    "bench": "Measure a training step: images/s, where its time goes, and what others need for the same work.",
    "migrate": "Carry PyTorch and TensorFlow 1 scripts to another accelerator: changes, advice, what is left.",
    "rehearse": "Run a migrated script without the accelerator, on a stand-in that keeps the card's limits.",
    "carry": "Migrate a script, rehearse it beside the original, compare them: one command from script to proof.",
    "compare": "Find the first operator where two dumps part ways, and why; or where two loss curves do.",
    "dump": "Run any PyTorch script, unmodified, and dump what its networks compute in chosen steps.",
    "data": "Build, fetch, index, check, look at and measure training data.",
    "models": "List the networks: parameters, multiplications, input size, recipes, source.",
    "weights": "Look into weights; bring TensorFlow checkpoints in and out, without TensorFlow.",
    "ranktable": "Make, check, show and convert the rank tables that describe a cluster.",
    "launch": "Start the ranks of a job on this machine, write scripts that do, or predict how it scales.",
    "devices": "Show which devices this machine has, and what is missing for the others.",
}


class LazyVerbs(typer.core.TyperGroup):
    """Lists verbs from the table; imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, (load_verb(name) if name in VERBS else placeholder), rest


def load_verb(name: str) -> Any:
    module = importlib.import_module(f"viaduct.verbs.{name}")
    if hasattr(module, "app"):  # a verb with verbs of its own
        return typer.main.get_command(module.app)
    verb = typer.Typer(add_completion=False, rich_markup_mode=None)
    verb.command(name, cls=getattr(module, "Command", None))(module.main)
    return typer.main.get_command(verb)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"viaduct {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    app = typer.Typer(
        cls=LazyVerbs,
        help="Carry the training of image classifiers onto the accelerator you were given.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version.", is_eager=True, callback=show_version
        ),
    ) -> None: ...

    for name, summary in VERBS.items():
        app.command(name, help=summary)(lambda: None)
    return app


def called(words: list[str]) -> str:
    """The verb, and of a verb with verbs of its own which of them: `data build`."""
    place = next((place for place, word in enumerate(words) if word in VERBS), None)
    if place is None:
        return ""
    app = getattr(sys.modules.get(f"viaduct.verbs.{words[place]}"), "app", None)
    known = getattr(typer.main.get_command(app), "commands", {}) if app else {}
    return " ".join([words[place], *(word for word in words[place + 1 : place + 2] if word in known)])


def main() -> None:
    # A vendor's plug-in that does not load must not stop `import torch`; devices/ loads it and says what is wrong.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    # OpenMP threads that wait shall soon sleep. Left to spin, they take the cores from those they wait for as soon as
    # another program runs: the demo fell from 870 to 20 images/s beside one busy process, and with this to 218.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        build_app()(prog_name="viaduct")
    except (ViaductError, ModuleNotFoundError) as error:
        explained = error if isinstance(error, ViaductError) else explain_import_error(error)
        if explained is None:
            raise
        if not explained.told:
            print(f"viaduct {called(sys.argv[1:])}".strip() + f": {explained}", file=sys.stderr)
        sys.exit(explained.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None or not output_is_full():
            raise
        refuse_to_print(error)
    except SystemExit:
        try:
            sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.EPIPE:  # a reader who has left is no mistake
                refuse_to_print(error)
        raise


def output_is_full() -> bool:
    """Whether it was standard output that could not be written."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except (OSError, ValueError):
        return True
    return False


def refuse_to_print(error: OSError) -> NoReturn:
    from viaduct.training.outlet import lead_nowhere

    lead_nowhere(sys.stdout)  # else the interpreter complains once more when it ends
    told = f"viaduct {called(sys.argv[1:])}".strip()
    print(f"{told}: standard output cannot be written: {error.strerror}.", file=sys.stderr)
    sys.exit(2)
