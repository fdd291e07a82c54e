"""Mistakes, planted for a moment: a function with some of its text replaced."""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def planted(function: Callable[..., Any], right: str, wrong: str) -> Iterator[None]:
    """Within it, everybody who calls `function` calls one in whose text `wrong` stands instead of `right`."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(right) != 1:
        raise ValueError(f"{function.__qualname__} has {source.count(right)} times {right!r}, not once")
    tree = ast.parse(source.replace(right, wrong))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    flags = __future__.annotations.compiler_flag
    scope: dict[str, Any] = {}
    exec(compile(tree, "planted", "exec", flags), function.__globals__, scope)
    before = function.__code__
    function.__code__ = scope[definition.name].__code__
    try:
        yield
    finally:
        function.__code__ = before
