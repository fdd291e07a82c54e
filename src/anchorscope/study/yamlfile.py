"""A strict YAML reader that knows the line of every value.

Plain PyYAML lets a repeated key win silently and expands aliases without bound. A study decides what is
computed, so both are refused here, and every error names its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from anchorscope.errors import StudyError, printable

MAX_BYTES = 1 << 18  # a larger file was not written by a person


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML file that knows on which line each value is."""

    path: Path | None
    """Path of the file, or None for values from Python."""
    data: Any
    """Content of the file, as plain values."""
    node: yaml.Node | None
    """Parsed YAML nodes, which know their lines."""

    def line(self, loc: Sequence[int | str]) -> int | None:
        """The line (from 1) of the value at `loc`, or of its nearest existing parent."""
        node, line = self.node, None
        if node is not None:
            line = node.start_mark.line + 1
        for part in loc:
            child = _child(node, part)
            if child is None:
                break
            line, node = child[0].start_mark.line + 1, child[1]
        return line


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that carries the line, and the value node, of one step down."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item
    return None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses aliases, merges and repeated keys, and reads words and numbers as people write them."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # filled below

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge" or key.value == "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, "merging (<<) is not supported; write the keys out", key.start_mark
                )

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = cast(Any, self).peek_event().start_mark
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are not supported; write the value out", mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    first = seen[key.value]
                    problem = f"'{printable(key.value)}' is given twice (first on line {first})"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


# YAML 1.1 reads `no` as false, `010` as 8 and `1:30` as 90. Only these forms are anything but text here:
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|)$", ["~", "n", ""]),
    ("bool", r"^(?:true|false)$", list("tf")),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    (
        "float",
        r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$",
        list("-+0123456789."),
    ),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def read_yaml(path: Path) -> YamlFile:
    """Read one YAML document. A mistake in it raises a StudyError with its line."""
    try:
        if not path.is_file():
            raise StudyError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        if path.stat().st_size > MAX_BYTES:
            raise StudyError(
                f"{path}: larger than {MAX_BYTES >> 10} KiB, so it is not a study or definition written by hand"
            )
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise StudyError(f"{path}: not UTF-8 text (byte {error.start})", "Save the file as UTF-8.") from None
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}") from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> YamlFile:
    """Parse the text of one YAML document that came from `path`."""
    loader = None
    try:
        loader = _StrictLoader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, path) from None
    except RecursionError:
        raise StudyError(f"{path}: nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise StudyError(f"{path}: not valid YAML ({printable(str(error), 200)})") from None
    finally:
        if loader is not None:
            loader.dispose()
    return YamlFile(path, data, node)


# What PyYAML says when something is mistyped, and what is most likely meant.
_MEANT = {
    "found character '\\t'": "Indent with spaces, not tabs.",
    "mapping values are not allowed": "Put a text that contains ': ' in quotes, or indent the line less.",
    "could not find expected ':'": "Write `key: value`, with a space after the colon.",
    "expected <block end>": "Indent the line like those above it, or add a missing `- ` or a space after ':'.",
    "expected ',' or": "Close the bracket or brace.",
    "found unexpected end of stream": "Close the quote.",
}


def _syntax_error(error: yaml.MarkedYAMLError, text: str, path: Path) -> StudyError:
    """Name the line, quote it, and say what was most likely meant."""
    problem = error.problem or "not valid YAML"
    mark = error.problem_mark or error.context_mark
    if problem.startswith(("could not find expected ':'", "expected ',' or")) and error.context_mark:
        mark = error.context_mark  # the parser notices only on a later line
    hint = next((meant for start, meant in _MEANT.items() if problem.startswith(start)), "")
    if mark is None:
        return StudyError(f"{path}: {printable(problem, 200)}", hint)
    lines = text.splitlines()
    quoted = printable(lines[mark.line].strip()) if mark.line < len(lines) else ""
    return StudyError(f"{path}:{mark.line + 1}: {printable(problem, 200)}" + (f"\n  {quoted}" if quoted else ""), hint)
