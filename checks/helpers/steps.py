"""What the checks share: options, steps, a temporary folder for each step, and one JSON object as the last line.

This module does not import anchorscope, so a check can also run with the package of an older checkout.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
COMMAND = [sys.executable, "-m", "anchorscope.cli"]

Figures = dict[str, Any]
Options = argparse.Namespace
Act = Callable[[Options, Path], Any]

NEEDS: dict[str, dict[str, Any]] = {
    "data": {"metavar": "DIR", "help": "Read the sets DIR/popqa.jsonl, triviaqa.jsonl, hotpotqa.jsonl and nq.jsonl."},
    "models": {"metavar": "DIR", "help": "Load the models from DIR (checks/README.md lists what it must hold)."},
    "run": {"metavar": "RUN", "help": "Read the run directory RUN, which `anchorscope run` made."},
    "before": {"metavar": "CHECKOUT", "help": "Compare with CHECKOUT, a folder with an older version of the code."},
    "vllm_python": {"metavar": "PYTHON", "help": "Run vLLM with PYTHON, which can import vLLM and anchorscope."},
    "litellm_python": {"metavar": "PYTHON", "help": "Run LiteLLM with PYTHON, which can import litellm[proxy]."},
    "inspect_python": {
        "metavar": "PYTHON",
        "help": "Run inspect_ai with PYTHON, which can import inspect_ai, openai and anchorscope.",
    },
    "peers_python": {
        "metavar": "PYTHON",
        "help": "Run the other tools with PYTHON, which can import transformer-lens 4.3 and nnsight 0.8.",
    },
    "judge_url": {"metavar": "URL", "help": "Ask the judge at URL, an OpenAI-compatible endpoint."},
    "judge_model": {"metavar": "NAME", "help": "Ask the model NAME of that endpoint."},
}
FOLDERS = {"data", "models", "run", "before"}
OPTIONAL = {
    "before", "vllm_python", "litellm_python", "inspect_python", "peers_python", "judge_url", "judge_model"
}  # fmt: skip
"""Needs without which a step is left out, unless the step was named."""


class Step(NamedTuple):
    """One measurement of a check."""

    act: Act
    """Function of the options and of an empty temporary folder. It returns what JSON can hold."""
    needs: tuple[str, ...]
    """Names of the options that the step cannot do without (NEEDS)."""
    by_default: bool
    """Whether the step is carried out when no step is named."""


class Check:
    """A check: its help text, its steps and its options. A call carries it out.

    check = Check(__doc__)

    @check.step("data", "models")
    def accuracy(options: Options, work: Path) -> Figures: ...

    check.option("--questions", "Ask this many questions of each set", 1_000)
    """

    def __init__(self, doc: str | None) -> None:
        self.doc, self.steps, self.options = doc, dict[str, Step](), dict[str, dict[str, Any]]()
        self.verdict: Callable[[Figures], None] = lambda _: None

    def step(self, *needs: str, by_default: bool = True) -> Callable[[Act], Act]:
        """Make a function a step of the check, under its own name."""

        def add(act: Act) -> Act:
            self.steps[act.__name__] = Step(act, needs, by_default)
            return act

        return add

    def option(self, flag: str, text: str, default: Any = None, **keywords: Any) -> None:
        """Add an option; its type is that of the default, which the help text gives."""
        if default is not None:
            first = default[0] if isinstance(default, list) and default else default
            keywords.setdefault("type", type(first))
            shown = " ".join(map(str, default)) if isinstance(default, list) else default
            text = f"{text} (default: {shown})"
        self.options[flag] = {"default": default, "help": f"{text}.", **keywords}

    def judge(self, verdict: Callable[[Figures], None]) -> None:
        """Call a function with all figures at the end, to stop with an error when a limit is not kept."""
        self.verdict = verdict

    def __call__(self, arguments: Sequence[str] | None = None) -> None:
        """Parse the arguments, carry out the steps that they name, and print one JSON object at the end."""
        options, names, left_out = self._parsed(arguments)
        figures: Figures = {}
        with tempfile.TemporaryDirectory() as temporary:
            for name in names:
                if name in left_out:
                    figures[name] = {"left out": left_out[name]}
                    continue
                folder = Path(temporary) / name
                folder.mkdir()
                figures[name] = _timed(name, self.steps[name].act, options, folder)
        print_json(figures)
        self.verdict({name: each for name, each in figures.items() if name not in left_out})

    def _parsed(self, arguments: Sequence[str] | None) -> tuple[Options, list[str], dict[str, str]]:
        """The options, the steps to carry out, and those of them that are left out, with the reason.

        A step whose needs are missing stops the check before it starts. A step that lacks an optional need, and was not
        named, is left out.
        """
        steps, parser = self.steps, new_parser(self.doc)
        default = [name for name, step in steps.items() if step.by_default]
        if len(steps) > 1:
            which = f"Carry out only these steps, out of {', '.join(steps)} (default: {_which(default, steps)})."
            parser.add_argument("steps", nargs="*", metavar="STEP", help=which)
        needed = [need for need in NEEDS if any(need in step.needs for step in steps.values())]
        add_needs(parser, needed, [need for need in needed if all(need in step.needs for step in steps.values())])
        for name, keywords in self.options.items():
            parser.add_argument(name, **keywords)
        options = parser.parse_args(arguments)
        named: list[str] = getattr(options, "steps", [])
        left_out: dict[str, str] = {}
        for name in named or default:
            if name not in steps:
                parser.error(f"there is no step '{name}'. The steps are: {', '.join(steps)}.")
            missing = [need for need in steps[name].needs if getattr(options, need) is None]
            optional = [need for need in missing if need in OPTIONAL]
            if optional and not named:
                left_out[name] = f"{flag(optional[0])} was not given"
            elif missing:
                parser.error(f"the step '{name}' needs {flag(missing[0])}. {NEEDS[missing[0]]['help']}")
        return options, named or default, left_out


def _which(default: Sequence[str], steps: Mapping[str, Step]) -> str:
    return "all" if len(default) == len(steps) else ", ".join(default)


def _timed(name: str, act: Act, options: Options, folder: Path) -> Any:
    print(f"== {name}: {(act.__doc__ or '').strip().partition(chr(10))[0]}", flush=True)
    start = time.perf_counter()
    figures = act(options, folder)
    if isinstance(figures, dict):
        figures = {**figures, "took_seconds": round(time.perf_counter() - start)}
    print(f"{name}: {_as_json(figures)}", flush=True)
    return figures


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows a check's docstring as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_needs(parser: argparse.ArgumentParser, needs: Sequence[str], required: Sequence[str] = ()) -> None:
    """Add the options for some needs to a parser."""
    for need in needs:
        kind: Any = (lambda text: Path(text).resolve()) if need in FOLDERS else str
        parser.add_argument(flag(need), type=kind, required=need in required, **NEEDS[need])


def flag(need: str) -> str:
    """The option that meets a need."""
    return "--" + need.replace("_", "-")


def print_json(figures: Any) -> None:
    """Print the last line of a check."""
    print(_as_json(figures), flush=True)


def _as_json(figures: Any) -> str:
    return json.dumps(figures, ensure_ascii=False, default=lambda value: value.item())  # numpy's numbers


def last_json(printed: str) -> Any:
    """The JSON object that a process printed as its last line."""
    return json.loads(printed.strip().splitlines()[-1])
