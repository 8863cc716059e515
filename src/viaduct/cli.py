"""The command line: the table of verbs, and the conversion of exceptions to messages and exit codes."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import typing
from itertools import pairwise
from typing import Any, NoReturn, TypeGuard

import typer
import typer.core
import typer.main

from viaduct import __version__
from viaduct.errors import BadValue, ViaductError
from viaduct.extras import explain_import_error
from viaduct.path_errors import explain_os_error, refuse_impossible
from viaduct.terminal import start_escaping_output, tidy_message
from viaduct.usage import explain_usage_error, list_flag_values
from viaduct.verbs._grouped_help import DefaultGroup, GroupedCommand

# Verb -> its line in `viaduct --help`, in the order of README.md. The module of a verb is imported when it is called.
VERBS = {
    "migrate": "Rewrite PyTorch and TensorFlow 1 scripts for another accelerator; name what needs manual review.",
    "rehearse": "Run a migrated script without the accelerator, on a stand-in that keeps the card's limits.",
    "carry": "Migrate a script, rehearse it beside the original, compare what they compute: one command, one verdict.",
    "train": "Train a recipe, or continue a run that was interrupted.",
    "evaluate": "Measure a run's checkpoints on the validation images.",
    "search": "Search the hyper-parameters of a recipe; every trial is an ordinary run.",
    "runs": "List training runs and what became of them; compare, trace, draw, watch and export them.",
    "bench": "Measure a training step: images/s, where its time goes, and the same work in torchvision or timm.",
    "compare": "Find the first operator where two dumps differ, and why; or the step where two loss curves do.",
    "dump": "Run a PyTorch or TensorFlow 1 script, unmodified, and dump what its networks compute in chosen steps.",
    "profile": "Show where the time of a training step goes, of any script or recipe, and what to do about it.",
    "tune": "Search faster variants of a recipe's operators on this device; keep them in a bank that training uses.",
    "predict": "Predict the most probable classes of image files and folders.",
    "export": "Write a trained network for another runtime: ONNX, torch.export, SavedModel; checked against PyTorch.",
    "serve": "Serve a trained classifier over HTTP: the Open Inference Protocol, /predict, a page to try it.",
    "data": "Build, fetch, index, check, show and measure training data.",
    "models": "List the networks: parameters, multiplications, input size, recipes, source.",
    "weights": "Show weights; import and export TensorFlow and MindSpore checkpoints, with neither installed.",
    "launch": "Start the ranks of a job on this machine, write scripts that do, or predict how it scales.",
    "ranktable": "Make, check, show and convert the rank tables that describe a cluster.",
    "devices": "Show which devices this machine has, and what is missing for the others.",
}


class LazyVerbs(typer.core.TyperGroup):
    """Command group that imports only the verb that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, placeholder, arguments = super().resolve_command(ctx, args)
        if name not in VERBS:
            return name, placeholder, arguments
        command = load_verb(name)
        check_arguments(command, arguments)
        return name, command, arguments


def load_verb(name: str) -> Any:
    """Import a verb's module and return its click command."""
    module = importlib.import_module(f"viaduct.verbs.{name}")
    if hasattr(module, "app"):  # a verb with subcommands
        return typer.main.get_command(module.app)
    verb = typer.Typer(add_completion=False, rich_markup_mode=None)
    verb.command(name, cls=getattr(module, "Command", GroupedCommand))(module.main)
    return typer.main.get_command(verb)


def check_arguments(command: Any, arguments: list[str]) -> None:
    """Raise an error for impossible paths and numbers that are not finite; arguments after `--` are not checked."""
    if subcommands := getattr(command, "commands", {}):
        if isinstance(command, DefaultGroup):
            arguments = command.prepend_subcommand(arguments)
        if arguments[:1] and arguments[0] in subcommands:
            check_arguments(subcommands[arguments[0]], arguments[1:])
        return
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    check_paths(command, arguments)
    check_numbers(command, arguments)


def check_paths(command: Any, arguments: list[str]) -> None:
    """Raise BadPath for a path that is empty, too long or contains a NUL byte."""
    paths = list_parameters(command, "Path")
    flags = {flag for parameter in paths for flag in parameter.opts if flag.startswith("-")}
    for flag, value in list_flag_values(flags, arguments):
        refuse_impossible(flag, value)
    if any(parameter.param_type_name == "argument" for parameter in paths):
        flags_with_value = list_flags_with_value(command)
        for previous, argument in pairwise(["", *arguments]):
            if previous not in flags_with_value and not argument.startswith("-"):
                refuse_impossible(flag="", path=argument)


def check_numbers(command: Any, arguments: list[str]) -> None:
    """Raise BadValue for NaN and infinity."""
    flags = {flag for parameter in list_parameters(command, "float") for flag in parameter.opts}
    for flag, value in list_flag_values(flags, arguments):
        if value.strip("+- ").lower() in ("nan", "inf", "infinity"):
            raise BadValue(f"{flag} is {value}; it must be a finite number.")


def list_parameters(command: Any, kind: str) -> list[Any]:
    """Return the parameters of a command whose type annotation contains the name `kind`, such as Path or float."""
    hints = typing.get_type_hints(command.callback)
    return [parameter for parameter in command.params if kind in str(hints.get(parameter.name))]


def list_flags_with_value(command: Any) -> list[str]:
    """Return the flags of a command that take a value."""
    parameters = [parameter for parameter in command.params if not getattr(parameter, "is_flag", False)]
    return [flag for parameter in parameters for flag in parameter.opts if flag.startswith("-")]


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"viaduct {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """Build the application with an empty command for each verb, which LazyVerbs replaces."""
    app = typer.Typer(
        cls=LazyVerbs,
        help="Port the training of image classifiers to the accelerator you were given.",
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


def find_verb(arguments: list[str]) -> str:
    """Return the verb of a command line, with its subcommand, such as `data build`."""
    position = next((position for position, argument in enumerate(arguments) if argument in VERBS), None)
    if position is None:
        return ""
    verb, following = arguments[position], arguments[position + 1 : position + 2]
    app = getattr(sys.modules.get(f"viaduct.verbs.{verb}"), "app", None)
    subcommands = getattr(typer.main.get_command(app), "commands", {}) if app else {}
    return " ".join([verb, *(argument for argument in following if argument in subcommands)])


def get_command(name: str) -> Any:
    """Return the command of a verb with its subcommand, such as `data build`."""
    verb, *subcommands = name.split()
    command = load_verb(verb)
    for subcommand in subcommands:
        command = command.commands[subcommand]
    return command


def main() -> None:
    """Run the command line; print errors of the user as messages, and exit with the command's code."""
    # A vendor's plug-in that does not load must not stop `import torch`; devices/ loads it and reports its errors.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    # Waiting OpenMP threads should soon sleep: spinning threads slow down the working ones if other programs run. The
    # training of `make demo` fell from 870 to 20 images/s beside one busy process, and with this setting to 218.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may have bytes that are not UTF-8
    start_escaping_output()
    try:
        code = build_app()(prog_name="viaduct", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except SystemExit:
        try:
            sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.EPIPE:  # `viaduct … | head` is not an error
                exit_without_stdout(error)
        raise
    except Exception as error:
        if is_stdout_full(error):
            exit_without_stdout(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            sys.exit(2)
        explained = explain(error)
        if explained is None:
            raise
        if not explained.is_silent:
            print(tidy_message(f"{find_command(error)}: {explained}"), file=sys.stderr)
        sys.exit(explained.exit_code)


def explain(error: Exception) -> ViaductError | None:
    """Return the error to print for an exception; None for a bug of viaduct, which keeps its traceback."""
    if isinstance(error, ViaductError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return explain_import_error(error)
    arguments = sys.argv[1:]
    if type(error).__name__ == "Abort":
        return ViaductError("aborted.")
    if usage := explain_usage_error(error, arguments):
        return usage
    if not isinstance(error, OSError | ValueError | RuntimeError):
        return None
    name = find_verb(arguments)
    return explain_os_error(error, arguments, list_flags_with_value(get_command(name)) if name else [])


def find_command(error: Exception) -> str:
    """Return the command that raised an error, such as `viaduct data build`, for the beginning of the message."""
    context = getattr(error, "ctx", None)
    return context.command_path if context else f"viaduct {find_verb(sys.argv[1:])}".strip()


def is_stdout_full(error: Exception) -> TypeGuard[OSError]:
    """Return True if stdout is a file that could not be written because its disk is full."""
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC or error.filename is not None:
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")  # the error names no file, so try whether stdout can be written
    except (OSError, ValueError):
        return True
    return False


def exit_without_stdout(error: OSError) -> NoReturn:
    """Print that stdout cannot be written, and exit."""
    from viaduct.training.output_streams import redirect_to_null

    redirect_to_null(sys.stdout)  # otherwise Python reports the error again when it flushes stdout at exit
    print(f"{find_command(error)}: standard output cannot be written: {error.strerror}.", file=sys.stderr)
    sys.exit(2)
