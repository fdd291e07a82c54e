"""Does everything work on a device that is not the CPU, and at the real size of the published models?

    python checks/accelerators.py

No GPU is needed. Steps: `operations` compares whatever touches a model on the CPU, on a pretend accelerator and over
two of them, for tiny models of every family; `mistakes` plants mistakes that a CPU cannot notice and counts those
that the pretend accelerator does; `published` puts Llama-3.2-1B and 3B, Qwen3-8B and 32B at their real size through
every kind of pass, on GPUs that are not there, and compares the memory of a batch with the formula that plans
batches; `flops` counts what a sweep over all conditions takes beside one plain pass. What they cannot show: speed,
how kernels round, and what a real allocator does when memory runs out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.steps import Check, Figures, Options, use_tests

use_tests()

from anchorscope.study import AnswersSpec, TraceSpec  # noqa: E402
from helpers import pretend  # noqa: E402
from helpers.device_operations import OPERATIONS  # noqa: E402
from helpers.devices import MISTAKES, differences, noticed, patients  # noqa: E402
from helpers.fake import PUBLISHED, fake_gpus, fake_model  # noqa: E402
from helpers.fake.passes import (  # noqa: E402
    LONGEST,
    THROUGH,
    FakePasses,
    flops_of,
    peak_of,
    peak_of_answers,
)

check = Check(__doc__)
SWEPT = 256  # samples of a sweep
SWEEPS = {
    "clean and knockout": TraceSpec(conditions=["clean", "knockout"]),
    "all conditions": TraceSpec(),
}
BATCH_TOKENS = AnswersSpec().batch_tokens
SIZES = {
    "memory of traces with evidence": (16, True),
    "memory of traces": (24, False),
}  # samples; whether evidence is asked for


@check.step()
def operations(options: Options, work: Path) -> Figures:
    """The largest difference of each operation from the CPU's, over all families."""
    from tiny import FAMILIES, save_tiny  # type: ignore[import-not-found]

    pretend.install()
    worst: Figures = {}
    for family in FAMILIES:
        by_place = patients(save_tiny(family, work / family))
        for name, operation in OPERATIONS.items():
            for place, difference in differences(by_place, operation).items():
                row = worst.setdefault(name, {})
                row[place] = max(row.get(place, 0.0), difference)
    for name, row in worst.items():
        print(f"{name:28} " + "  ".join(f"{place} {difference:.1e}" for place, difference in row.items()))
    return {"families": len(FAMILIES), "largest difference": worst}


@check.step()
def mistakes(options: Options, work: Path) -> Figures:
    """What the pretend accelerator says to each planted mistake."""
    from tiny import save_tiny

    pretend.install()
    by_place = patients(save_tiny("llama", work / "llama"))
    said = {mistake.what: noticed(mistake, by_place) for mistake in MISTAKES}
    for what, words in said.items():
        print(f"{what:46} {words}")
    return {"planted": len(said), "noticed": sum(words is not None for words in said.values()), "said": said}


@check.step()
def published(options: Options, work: Path) -> Figures:
    """Which passes go through at real size, and what a batch takes beside the formula."""
    from tiny import tiny_tokenizer

    tokenizer, out = tiny_tokenizer(), dict[str, Any]()
    for name, model in PUBLISHED.items():
        # the studies shard Qwen3 only; accelerate cannot tell shared weights that have no numbers
        for gpus in (1,) if model.config["tie_word_embeddings"] else (1, 2, 4):
            with fake_gpus():
                loaded = fake_model(name, gpus, tokenizer)
                row: Figures = {what: _went(through, FakePasses(loaded, 4)) for what, through in THROUGH.items()}
                if gpus == 1:
                    for what, (samples, evidence) in SIZES.items():
                        passes = FakePasses(loaded, samples, evidence)
                        row[what] = _memory(peak_of(passes), passes.predicted)
                    passes = FakePasses(loaded, BATCH_TOKENS // (model.prompt.own + LONGEST), size=model.prompt)
                    row["memory of answers"] = _memory(peak_of_answers(passes), passes.predicted_of_answers)
                    row["saliency, on the CPU"] = _went(FakePasses.saliency, FakePasses(fake_model(name, 0, None), 4))
            out[f"{model.id}, {gpus} GPU{'s' * (gpus > 1)}"] = row
            print(f"{model.id:26} {gpus} GPUs  {row}", flush=True)
    return out


def _went(through: Callable[[FakePasses], None], passes: FakePasses) -> str:
    try:
        through(passes)
    except Exception as error:  # noqa: BLE001 a backward pass needs a real device's context, for one
        return f"stopped: {str(error).splitlines()[0][:120]}"
    return "went through"


def _memory(peak: Counter[str], predicted: float) -> Figures:
    """Megabytes of one batch."""
    counted = max(size for device, size in peak.items() if device.startswith("cuda"))
    return {
        "counted_mb": round(counted / 1e6, 1),
        "predicted_mb": round(predicted / 1e6, 1),
        "predicted / counted": round(predicted / counted, 3),
    }


@check.step()
def flops(options: Options, work: Path) -> Figures:
    """What a sweep takes, beside a plain pass over the same samples, and beside the least possible."""
    out: Figures = {}
    for name, model in PUBLISHED.items():
        row: Figures = {}
        for what, spec in SWEEPS.items():
            with fake_gpus():
                passes = FakePasses(fake_model(name, 1, None), SWEPT, False, model.prompt, spec)
                sweep, bare, floor = flops_of(passes.traces), flops_of(passes.bare), passes.floor
            row[what] = {"sweep / bare": sweep / bare, "sweep / floor": sweep / floor, "bare_tflop": bare / 1e12}
        out[model.id] = row
        print(f"{model.id:26} {row}", flush=True)
    return out


if __name__ == "__main__":
    check()
