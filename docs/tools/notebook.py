"""Write docs/notebook.ipynb: its cells, and what they print and draw when they are executed.

    python docs/tools/notebook.py --model MODEL

MODEL is what stands for SmolLM2-135M-Instruct: its hub id (the default) or a folder with its weights. The cells are
executed in one namespace and in an empty folder, as Jupyter would execute them; Jupyter is not needed. A line that
begins with `!` is a command. With --keep, nothing is executed and only the texts are written again.
tests/test_notebook.py executes the cells with a tiny model.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PLACE = Path(__file__).parents[1] / "notebook.ipynb"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SITE = "https://anchorscope.github.io/anchorscope"

COUNTRIES = """
Albania Tirana, Argentina Buenos Aires, Australia Canberra, Austria Vienna, Belgium Brussels, Bolivia Sucre,
Brazil Brasilia, Bulgaria Sofia, Cambodia Phnom Penh, Canada Ottawa, Chile Santiago, China Beijing, Colombia Bogota,
Croatia Zagreb, Cuba Havana, Denmark Copenhagen, Ecuador Quito, Egypt Cairo, Estonia Tallinn, Ethiopia Addis Ababa,
Finland Helsinki, France Paris, Germany Berlin, Ghana Accra, Greece Athens, Hungary Budapest, Iceland Reykjavik,
India New Delhi, Indonesia Jakarta, Iran Tehran, Iraq Baghdad, Ireland Dublin, Italy Rome,
Jamaica Kingston, Japan Tokyo, Jordan Amman, Kenya Nairobi, Latvia Riga, Lebanon Beirut, Libya Tripoli,
Lithuania Vilnius, Malaysia Kuala Lumpur, Malta Valletta, Mongolia Ulaanbaatar, Morocco Rabat, Nepal Kathmandu,
Norway Oslo, Pakistan Islamabad, Peru Lima, Poland Warsaw, Portugal Lisbon, Romania Bucharest, Russia Moscow,
Senegal Dakar, Serbia Belgrade, Spain Madrid, Sweden Stockholm, Thailand Bangkok, Turkey Ankara,
Uruguay Montevideo
"""


class Cell(NamedTuple):
    """One cell."""

    kind: str
    """`markdown` or `code`."""
    source: str
    """Text of the cell."""


def _text(source: str) -> Cell:
    return Cell("markdown", source.strip())


def _code(source: str) -> Cell:
    return Cell("code", source.strip("\n"))


CELLS = (
    _text(f"""
# anchorscope in one notebook

This notebook is a **positive control**: it asks for capitals, where nothing can know whether *Lima* is right without
*Peru*. So the cut of the question's words must matter here, and you see what a clear effect looks like. You trace one
answer, make a small run with its charts, and fit a detector. It takes a few minutes on two cores, without a GPU, and
needs `pip install anchorscope`.

The output below is that of SmolLM2-135M-Instruct, from a 4-bit GGUF file unpacked to float32. [The idea in five
minutes]({SITE}/five-minutes/) explains the terms.
"""),
    _code(f'''
import anchorscope

NAME = "{MODEL}"
model = anchorscope.open_model(NAME, dtype="float32")
'''),
    _text("""
## Trace one answer

The question and the answer go through the model several times. In the *knockout*, later tokens can no longer attend
to the question's key words, which are in square brackets below. The controls cut as many other tokens. The curves
show how far the hidden state at the end of the answer moves in each layer.
"""),
    _code("""
sample = anchorscope.trace(model, "What is the capital of Peru?", "Lima")
print(sample)
sample.draw()
"""),
    _text("""
## Make a small run

A run asks many questions, and fits a probe in each layer that reads from the hidden state whether the answer is
right. To be quick, this run gives the model 120 answers instead of letting it write them. It asks two questions about
each of 60 countries, and every second country gets the answers of the next one, which are wrong.
"""),
    _code(f'''
import json
from pathlib import Path

pairs = """
{COUNTRIES.strip()}
"""
countries = [pair.split(maxsplit=1) for pair in pairs.strip().split(",")]  # such as ["Peru", "Lima"]
asked, given = [], []
for i, (country, capital) in enumerate(countries):
    right = i % 2 == 0
    told = countries[i] if right else countries[(i + 1) % len(countries)]
    for question, answer, said in (
        (f"What is the capital of {{country}}?", capital, told[1]),
        (f"Which country has the capital {{capital}}?", country, told[0]),
    ):
        asked.append({{"question": question, "answers": [answer], "subject": country}})
        given.append({{"question": question, "answer": said, "label": right}})
for name, rows in (("capitals", asked), ("given", given)):
    Path(f"{{name}}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
fields = "{{question: question, answers: answers, subject: subject}}"
Path("capitals.yaml").write_text(f"name: capitals\\nfile: capitals.jsonl\\nfields: {{fields}}\\n")
given[1], given[2]
'''),
    _code("""
study = anchorscope.Study.model_validate({
    "name": "notebook",
    "models": [{"id": NAME, "dtype": "float32"}],
    "datasets": ["capitals.yaml"],
    "answers": {"source": "file", "file": "given.jsonl"},
    "traces": {"conditions": ["clean", "knockout"], "attention_samples": 0},
    "probes": {"repeats": 2, "resamples": 200},
})
run = anchorscope.run_study(study)
run
"""),
    _text("""
The chart shows ΔP by layer. ΔP is the change of the probability that the probe gives to the class it predicts, when
the question's key words are cut. Answers whose class flips are *Q-Anchored*, and the others are *A-Anchored*. A group
of fewer than 30 answers has no line.
"""),
    _code("""
run.draw("delta_p")
"""),
    _text("""
**This chart proves nothing by itself**, because answers are sorted by the same flip that is measured. The next chart
compares the knockout with the permutation null, in which each answer receives the shift of a different answer. What
the dotted lines show too is no evidence of two pathways. The study above left out the other controls to be quick.
"""),
    _code("""
run.draw("nulls")
"""),
    _text("""
In row (b), the knockout costs far more AUROC than the null. It must do so here, because nothing can tell whether
*Lima* is right without the name of the country. In row (a), most of the gap between Q and A is also there under the
null. In row (c), probes that were fitted on the cut states lose as much, so the signal is gone and not only misread.
"""),
    _text("""
With a run, `trace` shows what the run's probes read. Here is a right and a wrong answer to one question.
"""),
    _code("""
for answer in ("Lima", "Madrid"):
    print(anchorscope.trace(model, "What is the capital of Peru?", answer, run=run.root))
"""),
    _text("""
## Fit a detector

A detector judges one answer. This one reads a single layer.
"""),
    _code("""
!anchorscope detect fit runs/notebook --detector single_layer -o capitals
"""),
    _code("""
detector = anchorscope.Detector.load("capitals")
for answered in detector.answer(model, ["What is the capital of Cyprus?", "What is the capital of Tuvalu?"]):
    p = answered.verdict.p_wrong
    print(answered.answer, "|", answered.verdict.decision, "|", p if p is None else round(p, 2))
"""),
    _text(f"""
The detector says *flag*, *doubtful*, *pass* or *cannot say*. Both answers above are wrong, and it lets one of them
pass. It was fitted on answers that the model did not write, half of them wrong, so its probabilities do not hold for
the model's own answers. For a detector to use, let the model answer, collect about 300 right answers, and ask for a
promise such as `--at-most "10% false alarms"`.

## Go on

- The [tutorial]({SITE}/tutorial/) lets the model answer, makes all controls and reads the ledger of claims.
- [Work from Python]({SITE}/library/) has more of the library.
- [Use a detector in production]({SITE}/howto/production/) serves verdicts with vLLM.
"""),
)


Shell = Callable[[Sequence[str]], str]
"""Runs a command of ours and returns what it prints."""


def run_command(words: Sequence[str]) -> str:
    """Run `anchorscope …` with this Python, and return what it prints."""
    if words[0] != "anchorscope":
        raise ValueError(f"the notebook runs no command but anchorscope, not {words[0]}")
    command = [sys.executable, "-m", "anchorscope.cli", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 — the cells above
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def execute(cells: Sequence[Cell], model: str = MODEL, shell: Shell = run_command) -> Iterator[list[dict[str, Any]]]:
    """Execute the code cells in one namespace, in the current folder; yield the outputs of each."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        if cell.kind == "code":
            yield _outputs(cell.source.replace(f'"{MODEL}"', repr(model)), namespace, shell)


def _outputs(source: str, namespace: dict[str, Any], shell: Shell) -> list[dict[str, Any]]:
    if source.startswith("!"):
        return [_stream(shell(shlex.split(source[1:])))]
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)  # noqa: S102 — the cells above
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)  # noqa: S307 — likewise
    outputs = [_stream(printed.getvalue())] if printed.getvalue() else []
    return outputs if value is None else [*outputs, _result(value)]


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def _result(value: Any) -> dict[str, Any]:
    """The value of a cell's last line, as a notebook shows it: a picture where it draws itself, and text."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_png_"):
        data = {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": ["<Figure>"]}
    return {"output_type": "execute_result", "data": data, "metadata": {}}


def notebook(cells: Sequence[Cell], outputs: Sequence[Sequence[dict[str, Any]]]) -> str:
    """The notebook as JSON, format 4.5."""
    left, written, count = list(outputs), [], 0
    for number, cell in enumerate(cells):
        each: dict[str, Any] = {
            "cell_type": cell.kind, "id": f"cell-{number}", "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }  # fmt: skip
        if cell.kind == "code":
            count += 1
            made = [
                {**one, "execution_count": count} if one["output_type"] == "execute_result" else one
                for one in left.pop(0)
            ]
            each |= {"execution_count": count, "outputs": made}
        written.append(each)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute the cells and write the notebook."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL, help="Hub id or folder of the model (default: %(default)s).")
    parser.add_argument("--keep", action="store_true", help="Keep the outputs of the file, and write the texts again.")
    given = parser.parse_args(arguments)
    outputs = kept_outputs(CELLS) if given.keep else fresh_outputs(given.model)
    PLACE.write_text(notebook(CELLS, outputs), encoding="utf-8")


def kept_outputs(cells: Sequence[Cell]) -> list[list[dict[str, Any]]]:
    """The outputs that the file has, where its code is still that of the cells."""
    code = [each for each in json.loads(PLACE.read_text(encoding="utf-8"))["cells"] if each["cell_type"] == "code"]
    if ["".join(each["source"]) for each in code] != [cell.source for cell in cells if cell.kind == "code"]:
        raise SystemExit("The code of the cells has changed. Run it again without --keep.")
    return [each["outputs"] for each in code]


def fresh_outputs(model: str) -> list[list[dict[str, Any]]]:
    """Execute the cells in an empty folder."""
    place, before = str(Path(model).resolve()) if Path(model).exists() else model, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return list(execute(CELLS, place))
        finally:
            os.chdir(before)


if __name__ == "__main__":
    main()
