"""Long prompts with text of their own: what a sweep costs, over a bare pass. Its last line is JSON.

The clean pass and the knockout over prompts that share nothing, filled up to some lengths, against one plain pass of
the bare engine over the same prompts (benchmarks/). The floor is what must be computed at least: one plain pass, and
what follows the cut. `within` says whether every median stays below --most.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from bench import say, sweep_and_floor  # noqa: E402
from cases import MODELS, SETS, Case, make_cases, model_of  # noqa: E402

APART = 97  # tokens from where one prompt's text begins to where the next one's does


def filled(cases: list[Case], text: list[int], tokens: int) -> list[Case]:
    """The same questions, each behind text of its own."""
    enough = text * (1 + (tokens + APART * len(cases)) // len(text))
    return [
        case.longer(enough[APART * i :][: max(0, tokens - len(case.ids))], shared=False) for i, case in enumerate(cases)
    ]


def main() -> int:
    """Measure each length, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS), help="which models")
    parser.add_argument("--lengths", type=int, nargs="*", default=[100, 200, 400, 800])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--layers", type=int, help="the model's first layers alone: what is compared is alike in each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=float, default=1.2, help="sweep / bare at most, or its floor where that is more")
    parser.add_argument("--work", type=Path, help="where answers are kept for another time; default: nowhere")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            cases = make_cases(name, 0, options.questions, SETS, options.data, options.models, work)
            text = [token for case in cases for token in case.ids[case.shared :]]
            model = model_of(name, options.dtype, options.models)
            if options.layers:
                decoder = model.network.get_decoder()
                decoder.layers = decoder.layers[: options.layers]
                model.network.config.get_text_config().num_hidden_layers = options.layers
            for tokens in options.lengths:
                key = f"{MODELS[name]}/{tokens}"
                found[key] = sweep_and_floor(model, filled(cases, text, tokens), options.repeats)
                say(key, found[key])
    within = all(each["sweep/bare"]["median"] <= max(options.most, each["floor/bare"]) for each in found.values())
    print(json.dumps({"within": within, "most": options.most, "dtype": options.dtype, **found}))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
