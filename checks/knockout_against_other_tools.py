"""Does the knockout compute what other tools compute, and does every real model pass the self-test?

    python checks/knockout_against_other_tools.py --models DIR [--peers-python PYTHON]

Steps: `doctor` runs the self-test on the real models; `tools` makes the same cuts with TransformerLens and nnsight
(SmolLM2-135M, float32, all layers and sites) and needs --peers-python. The comparison with attention written out by
hand, on tiny models of every family, is a gate: tests/traces/test_tracer.py.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import torch

from anchorscope.study.terms import SITES
from anchorscope.traces.doctor import Doctor
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import clean_stream, cut_stream
from anchorscope.traces.tracer import Read, Tracer
from helpers.models import loaded
from helpers.steps import Check, Figures, Options
from weights import NAMES, unpacked

check = Check(__doc__)


def difference(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the layer's largest activation. Both are (layer, read, width)."""
    scale = expected.abs().amax(dim=(1, 2), keepdim=True)
    return float(((ours.double() - expected.double()).abs() / scale).max())


@check.step("models")
def doctor(options: Options, work: Path) -> Figures:
    """Run the self-test on real models, in float32 and bfloat16."""
    figures: Figures = {}
    for name in options.only:
        for dtype in ("float32", "bfloat16"):
            checks = Doctor(*loaded(unpacked(name, options.models), dtype)).examine()
            failed = [each.name for each in checks if each.passed is False]
            figures[f"{NAMES[name]}/{dtype}"] = {"failed": failed, **{each.name: each.detail for each in checks}}
    return figures


@check.step("models", "peers_python")
def tools(options: Options, work: Path) -> Figures:
    """The largest difference from TransformerLens and from nnsight, by site."""
    from safetensors.torch import load_file

    place = unpacked("smollm2-135m", options.models)
    model, prompter = loaded(place, "float32")
    examinee, shared = Doctor(model, prompter), prompter.shared_ids
    tracer = Tracer(model, shared, SITES)
    cases, rows, reads = [], [], []
    for i, (ids, spans) in enumerate(zip(examinee.ids, examinee.spans, strict=True)):
        row = [clean_stream(ids, len(shared))]
        for span in ("exact_question", "control_question", "matched_question"):
            for into in ("after", "answer"):
                cut = Knockout(span, into).cut(spans)
                for layers in (range(tracer.layers), range(9, 10)):
                    reads += [Read(i, len(row), len(ids) - 2), Read(i, len(row), len(ids) - 1)]
                    row.append(cut_stream(ids, len(shared), cut, layers))
                    cuts = [list(pair) for pair in zip(cut.keys, cut.first_queries, strict=True)]
                    cases.append(
                        {"ids": ids, "cuts": cuts, "layers": list(layers), "reads": [len(ids) - 2, len(ids) - 1]}
                    )
        rows.append(row)
    ours = tracer(rows, reads)
    (work / "cases.json").write_text(json.dumps(cases))
    figures: Figures = {"cases": len(cases)}
    for tool in ("transformer_lens", "nnsight"):
        out = work / f"{tool}.safetensors"
        script = Path(__file__).resolve().parent / "helpers" / "other_tools.py"
        words = [options.peers_python, str(script), tool, str(place), str(work / "cases.json"), str(out)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        theirs = load_file(out)
        figures[tool] = {
            site: max(difference(ours[site][:, 2 * j : 2 * j + 2], theirs[f"{j}.{site}"]) for j in range(len(cases)))
            for site in SITES
        }
    return figures


check.option("--only", "Examine these real models", list(NAMES), nargs="*", choices=list(NAMES), metavar="NAME")

if __name__ == "__main__":
    check()
