"""Does every token of every prompt find its characters, with the tokenizers of all the models?

    python checks/token_alignment.py --data DIR --models DIR

All questions of the four sets, as prompts with 4 shots. Exact question tokens are marked by these characters.
"""

from __future__ import annotations

import time
from pathlib import Path

from anchorscope import ModelSpec, PromptSpec
from anchorscope.models.load import load_tokenizer, wants_bos
from anchorscope.models.prompts import Prompter
from anchorscope.models.source import find_model
from anchorscope.spans.alignment import align
from helpers.runs import questions_in
from helpers.steps import SETS, Check, Figures, Options
from weights import NAMES, unpacked

check = Check(__doc__)


@check.step("data", "models")
def alignment(options: Options, work: Path) -> Figures:
    """Count the prompts whose tokens cover their text from the first character to the last."""
    figures = {}
    for name in options.only:
        spec = ModelSpec(id=str(unpacked(name, options.models)), name="m")
        source = find_model(spec, Path())
        tokenizer = load_tokenizer(spec, source)
        prompter = Prompter(tokenizer, PromptSpec(), wants_bos(tokenizer, source))
        aligned = total = 0
        start = time.perf_counter()
        for dataset in SETS:
            questions = questions_in(options.data, dataset)
            for first in range(0, len(questions), 1_000):
                for prompt in prompter.many([(question, None) for question in questions[first : first + 1_000]]):
                    total += 1
                    ranges = align(tokenizer, prompt.ids, prompt.text, token=prompt.bos)
                    aligned += ranges is not None and ranges[-1][1] == len(prompt.text)
        seconds = round(time.perf_counter() - start, 1)
        figures[NAMES[name]] = {"aligned": aligned, "of": total, "seconds": seconds}
    return figures


check.option(
    "--only", "Check the tokenizers of these models", list(NAMES), nargs="*", choices=list(NAMES), metavar="NAME"
)

if __name__ == "__main__":
    check()
