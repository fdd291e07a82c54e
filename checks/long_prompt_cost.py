"""What does a sweep cost over long prompts that share no text, against one plain pass of the model?

    OMP_NUM_THREADS=1 python checks/long_prompt_cost.py --layers 6 --data DIR --models DIR

The clean pass and the knockout over prompts that are filled up to several lengths, against one plain pass over the same
prompts (benchmarks/). The floor is the least that must be computed: one plain pass, and what follows the cut. `within`
says whether every median stays below --most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.steps import ROOT, Check, Figures, Options
from weights import TITLES

if TYPE_CHECKING:
    from cases import Case

check = Check(__doc__)

APART = 97  # tokens from where one prompt's text begins to where the next one's does


def filled(cases: list[Case], text: list[int], tokens: int) -> list[Case]:
    """The same questions, each behind text of its own."""
    enough = text * (1 + (tokens + APART * len(cases)) // len(text))
    return [
        case.longer(enough[APART * i :][: max(0, tokens - len(case.ids))], shared=False) for i, case in enumerate(cases)
    ]


@check.step("data", "models")
def prompts(options: Options, work: Path) -> Figures:
    """Ratios of a sweep to a plain pass, by model and prompt length."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from bench import say, sweep_and_floor
    from cases import SETS, make_cases, model_of

    ratios: Figures = {}
    kept = options.work or work
    kept.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        cases = make_cases(name, 0, options.questions, SETS, options.data, options.models, kept)
        text = [token for case in cases for token in case.ids[case.shared :]]
        model = model_of(name, options.dtype, options.models)
        if options.layers:
            decoder = model.network.get_decoder()
            decoder.layers = decoder.layers[: options.layers]
            model.network.config.get_text_config().num_hidden_layers = options.layers
        for tokens in options.lengths:
            key = f"{TITLES[name]}/{tokens}"
            ratios[key] = sweep_and_floor(model, filled(cases, text, tokens), options.repeats)
            say(key, ratios[key])
    within = all(each["sweep/bare"]["median"] <= max(options.most, each["floor/bare"]) for each in ratios.values())
    return {"within": within, "most": options.most, "dtype": options.dtype, **ratios}


@check.judge
def judge(figures: Figures) -> None:
    """Stop when a ratio is too high."""
    assert figures["prompts"]["within"], "a sweep costs more than --most allows"


check.option("--only", "Time these models", list(TITLES), nargs="*", choices=list(TITLES), metavar="NAME")
check.option("--lengths", "Fill prompts up to these numbers of tokens", [100, 200, 400, 800], nargs="*")
check.option("--dtype", "Load the models in this dtype", "float32")
check.option("--questions", "Take this many questions", 16)
check.option("--layers", "Keep only the first N layers, as the ratio is alike in every layer", type=int, metavar="N")
check.option("--repeats", "Time each way this many times", 5)
check.option("--most", "Allow this ratio of sweep to plain pass, or the floor where the floor is higher", 1.2)
check.option("--work", "Keep the models' answers in DIR for another time", type=Path, metavar="DIR")

if __name__ == "__main__":
    check()
