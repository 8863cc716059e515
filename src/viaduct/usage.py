"""Conversion of typer's usage errors to viaduct's messages: an unknown verb or flag, a missing argument, a bad value.

Typer raises the error classes of click. They are recognised by name, because typer 0.12 imports them from the package
click and later versions have a copy. `context` is click's context, with the command that was called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

from viaduct.errors import BadValue, ViaductError, find_closest
from viaduct.path_errors import describe_permission, shorten


def explain_usage_error(error: Exception, arguments: Sequence[str]) -> ViaductError | None:
    """Return the error to print for a mistake on the command line; None for any other exception."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "ClickException" not in kinds:
        return None
    context: Any = getattr(error, "ctx", None)
    help_command = f"`{context.command_path if context else 'viaduct'} --help`"
    message = getattr(error, "message", str(error))
    if "NoSuchOption" in kinds:
        return explain_unknown_flag(error, context, help_command)
    if "MissingParameter" in kinds:
        return explain_missing(error, context, help_command)
    if "BadParameter" in kinds:
        return explain_value(error, arguments)
    if "BadOptionUsage" in kinds:
        return explain_flag_usage(error, message)
    if unknown := re.match(r"No such command '?(.*?)'?\.(?: |$)", message):
        known = context.command.list_commands(context) if context else []
        return explain_unknown_name("verb", unknown[1], known, f"{help_command} shows all {len(known)}.")
    if extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL):
        return BadValue(f"too many arguments: {extra[1]!r} is not expected.", format_usage(context, help_command))
    return BadValue(message.rstrip(".") + ".", f"{help_command} shows what can be given.")


def explain_unknown_name(kind: str, name: str, known: Sequence[str], how_to_list: str) -> ViaductError:
    closest = find_closest(name, known)
    return BadValue(f"no {kind} called {name!r}.", f"Closest is {closest!r}; {how_to_list}" if closest else how_to_list)


def explain_unknown_flag(error: Any, context: Any, help_command: str) -> ViaductError:
    parameters = context.command.params if context else []
    name = error.option_name
    arguments = [parameter.name for parameter in parameters if parameter.param_type_name == "argument"]
    known = [flag for parameter in parameters for flag in (*parameter.opts, *parameter.secondary_opts)]
    flags = [flag for flag in known if flag.startswith("-")]
    if name == "--model" and "--set" in flags:
        network = "The network is a field of the recipe: --set model=torchvision:resnet50"
        return BadValue(f"no option called {name!r}.", f"{network}; {help_command} shows all {len(flags)} options.")
    closest = find_closest(name, [*flags, *arguments])
    if closest in arguments:
        hint = f"The {closest} is given without a flag. {format_usage(context, help_command)}"
        return BadValue(f"no option called {name!r}.", hint)
    hints = [hint] if (hint := getattr(error, "hint", "")) else []
    unknown = explain_unknown_name("option", name, flags, f"{help_command} shows all {len(flags)}.")
    return BadValue(unknown.message, *unknown.hints, *hints)


def explain_missing(error: Any, context: Any, help_command: str) -> ViaductError:
    parameter = error.param
    if parameter is None:
        return BadValue(str(error.message) or "something is missing.", f"{help_command} shows what is needed.")
    meaning = f": {parameter.help}" if getattr(parameter, "help", "") else "."
    if parameter.param_type_name == "argument":
        return BadValue(f"{parameter.name.upper()} is missing{meaning}", format_usage(context, help_command))
    return BadValue(f"{parameter.opts[0]} is missing{meaning}", f"{help_command} shows all that can be given.")


def format_usage(context: Any, help_command: str) -> str:
    """Return the command with its arguments, such as `viaduct compare LEFT RIGHT`."""
    if context is None:
        return f"{help_command} shows what can be given."
    parts = [context.command_path]
    for parameter in context.command.params:
        if parameter.param_type_name == "argument":
            name = parameter.name.upper()
            parts.append(name if parameter.required else f"[{name}]")
        elif parameter.required:
            parts.append(f"{parameter.opts[0]} VALUE")
    return f"It is `{' '.join(parts)}`; {help_command} says more."


def explain_flag_usage(error: Any, message: str) -> ViaductError:
    flag = error.option_name
    if count := re.search(r"requires (an|\d+) argument", message):
        needed = "a value" if count[1] == "an" else f"{count[1]} values"
        example = f"{flag} VALUE" if count[1] == "an" else f"{flag} {' '.join(['VALUE'] * int(count[1]))}"
        return BadValue(f"{flag} needs {needed}.", f"Write it as {example}.")
    if "does not take a value" in message:
        return BadValue(f"{flag} takes no value.", f"Write {flag} alone.")
    return BadValue(message.rstrip(".") + ".")


def explain_value(error: Any, arguments: Sequence[str]) -> ViaductError:
    parameter, message = error.param, str(error.message).removeprefix("Value error, ")
    flags = [flag for flag in parameter.opts if flag.startswith("-")] if parameter is not None else []
    name = flags[0] if flags else (parameter.name.upper() if parameter is not None else "a value")
    given = find_flag_value(flags, arguments)
    value = "" if given is None else repr(given)
    if choices := re.match(r"(?P<value>.*) is not one of (?P<choices>.*?)\.?$", message, re.DOTALL):
        known = re.findall(r"'([^']*)'", choices["choices"])
        closest = find_closest(choices["value"].strip("'"), known)
        hints = [f"Closest is {closest!r}."] if closest else []
        return BadValue(f"{name} is {choices['value']}; it must be {join_names(known)}.", *hints)
    if refused := re.match(r"\w+ '(?P<path>.*)' is not (readable|writable)\.?$", message, re.DOTALL):
        reason, hint = describe_permission(refused["path"])  # as for a path that viaduct itself may not open
        return BadValue(f"{name} {shorten(refused['path'])}: {reason}.", hint)
    expected = describe_expected(message)
    if expected:
        return BadValue(f"{name} is {value}; it must be {expected}." if value else f"{name} must be {expected}.")
    return BadValue(f"{name}{f' is {value}' if value else ''}: {message.rstrip('.')}.")


def list_flag_values(flags: Collection[str], arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each of these flags on the command line with its value: `--out a`, `--out=a`."""
    for previous, argument in pairwise(["", *arguments]):
        flag, equals, value = argument.partition("=")
        if previous in flags:
            yield previous, argument
        elif equals and flag in flags:
            yield flag, value


def find_flag_value(flags: Collection[str], arguments: Sequence[str]) -> str | None:
    """Return the last value of these flags on the command line; None if they are not given."""
    return next(reversed([value for _, value in list_flag_values(flags, arguments)]), None)


def describe_expected(message: str) -> str:
    """Describe the expected value, from the message of pydantic (newer typer) or click (older)."""
    bounds = {
        r"greater than or equal to (\S+)": "{} or more",
        r"less than or equal to (\S+)": "at most {}",
        r"greater than (\S+)": "above {}",
        r"less than (\S+)": "below {}",
        r"not in the range x>=([-\d.]+)": "{} or more",
        r"not in the range x<=([-\d.]+)": "at most {}",
        r"not in the range ([-\d.]+<=x<=[-\d.]+)": "in {}",
    }
    for pattern, template in bounds.items():
        if match := re.search(pattern, message):
            return template.format(match[1])
    if "integer" in message:
        return "a whole number"
    if "number" in message or "float" in message:
        return "a number"
    return "true or false" if "bool" in message else ""


def join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
