"""Uses of Horovod for TensorFlow in a file, and their replacement."""

from __future__ import annotations

import ast
from collections.abc import Callable

from viaduct.migration.import_graph import find_programs, list_program_escapes
from viaduct.migration.lookups import contains_call
from viaduct.migration.rule import Handler, Rule, Site, cache_per_file

KERAS_MODULES = ("horovod.keras", "horovod.tensorflow.keras")
MODULES = ("horovod.tensorflow", *KERAS_MODULES)


def qualified_names(*functions: str, modules: tuple[str, ...] = MODULES) -> tuple[str, ...]:
    """Return the qualified names of functions of Horovod, in each of the modules."""
    return tuple(f"{module}.{function}" for module in modules for function in functions)


def get_name_in_horovod(site: Site) -> str:
    """Return the name of the site without Horovod's module: `callbacks.MetricAverageCallback`."""
    root = next(root for root in sorted(MODULES, key=len, reverse=True) if site.name.startswith(f"{root}."))
    return site.name.removeprefix(f"{root}.")


def is_horovod(name: str | None) -> bool:
    """Return True for the qualified name of Horovod for TensorFlow or Keras, or of anything in it."""
    return name is not None and any(name == root or name.startswith(f"{root}.") for root in MODULES)


def register_call(rule: Rule, *functions: str, modules: tuple[str, ...] = MODULES) -> Callable[[Handler], Handler]:
    """Register a handler for calls of these functions of Horovod, unless the program keeps Horovod."""

    def register(handler: Handler) -> Handler:
        def handle(site: Site) -> None:
            if not keeps_horovod(site):
                handler(site)

        return rule.call(*qualified_names(*functions, modules=modules))(handle)

    return register


@cache_per_file
def find_unfollowed_uses(site: Site) -> list[str]:
    """Return the lines (`file:line`) at which the program passes Horovod's module to code that cannot be followed."""
    return [*list_program_escapes(site.file.project, site.file.path)]


def keeps_horovod(site: Site) -> bool:
    """Return True if Horovod stays in the program because uses of its module cannot be followed."""
    return bool(find_unfollowed_uses(site))


def find_files_with_horovod(site: Site) -> list[str]:
    """Return the files of the program that use parts of Horovod without a counterpart on the NPU."""
    keeping_files = site.file.project.unconverted_horovod_files
    if not keeping_files:
        return []
    programs = find_programs(site.file.project, site.file.path)
    return sorted(keeping_files & {path for program in programs for path in program})


def calls_any(site: Site, node: ast.AST, *functions: str) -> bool:
    """Return True if an expression calls one of these functions of Horovod."""
    return contains_call(site, node, qualified_names(*functions))


def replace_call(site: Site, text: str) -> bool:
    """Replace the call by a text; return False if the call cannot be edited or holds a comment."""
    if not site.is_editable or site.edit.has_comment(*site.source.span(site.node)):
        return False
    site.edit.replace_node(site.node, text)
    return True


def replace_or_report(site: Site, text: str, message: str, zh: str) -> None:
    """Replace the call by a text and report it, or report that it needs manual review."""
    if replace_call(site, text):
        site.report_change(message, zh=zh)
    else:
        request_manual_change(site, f"write {text}", f"请改为 {text}")


def request_manual_change(site: Site, advice: str, zh: str) -> None:
    """Report a use of Horovod that needs manual review."""
    name = f"hvd.{get_name_in_horovod(site)}"
    site.request_review(f"{name} needs a manual change: {advice}", zh=f"{name}:请手工修改;{zh}", risk="high")
