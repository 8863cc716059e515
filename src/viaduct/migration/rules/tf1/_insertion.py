"""Statements before and after which lines may be inserted."""

from __future__ import annotations

import ast

from viaduct.migration.lookups import plain_name
from viaduct.migration.names import Comprehension
from viaduct.migration.rule import Site
from viaduct.migration.source import FunctionNode


def starts_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if a statement begins its line, so that lines may be inserted before it."""
    start = site.source.span(statement)[0]
    return not site.source.text[site.source.line_start(start) : start].strip(" \t\f\ufeff")


def ends_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if no semicolon follows a statement on its last line, so that lines may be inserted after it."""
    end = site.source.span(statement)[1]
    following = next(site.source.tokens_from(end), None)
    return following is None or following.text != ";" or following.start > site.source.line_stop(end)


def find_insertion_statement(site: Site, node: ast.AST) -> ast.stmt | None:
    """Return the statement before which code for an expression may be inserted.

    None in a lambda, a comprehension, a definition's header, a class body, an `elif`, or behind other code on its line.
    """
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.Lambda | Comprehension):
            return None
        if isinstance(parent, ast.stmt):
            break
    statement = site.source.statement_around(node)
    if isinstance(statement, FunctionNode | ast.ClassDef) or isinstance(site.source.parents[statement], ast.ClassDef):
        return None
    is_elif = isinstance(statement, ast.If) and site.text_of(statement).startswith("elif")
    return statement if starts_line(site, statement) and not is_elif else None


def reads_bound_name(statement: ast.stmt, value: ast.expr) -> bool:
    """Return True if the value reads a name that its statement binds: `with open(f) as g, Session(config=C(g))`."""
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(plain_name(node) in bound for node in ast.walk(value))
