"""What does saliency cost, against the plain way to compute it?

    python checks/saliency_cost.py --run RUN --models DIR

Both ways get the same samples of a run in the same batches, and the same random probe at the MLP of a layer in the
middle, at the last exact answer token. The plain way is what one would write first: eager attention over whole padded
sequences, few-shot examples included; parameters frozen, embeddings with a gradient; one forward pass with
output_attentions in which every attention map keeps its gradient, one backward pass, and the edges picked from the
maps. The gradient is that of the probe's logit. Times are taken in turns; the ratio is the median over the pairs.
Memory is the peak of a process of its own, above what the process held before the first batch.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope import ModelSpec
from anchorscope.answers.record import ANSWERS
from anchorscope.models.load import Model, load_model
from anchorscope.models.sites import site_modules
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Store
from anchorscope.traces.attention import attention_as
from anchorscope.traces.saliency import saliencies
from helpers.steps import Check, Figures, Options, last_json
from weights import unpacked

check = Check(__doc__)

BATCH = 16  # samples per batch
TARGET = 1.5  # largest ratio to the time of the plain way
NEAR = 1e-4  # largest difference from the plain way, relative to the largest value


@dataclass(frozen=True)
class Task:
    """What is measured."""

    model: Model
    """The model, in float32."""
    shared_ids: list[int]
    """The tokens with which all prompts start."""
    samples: list[Sample]
    """The samples, in the order of their length."""
    layer: int
    """The layer whose states the probe reads."""

    def weights(self) -> NDArray[np.float32]:
        """(sample, width): one probe, repeated for each sample."""
        probe = np.random.default_rng(0).normal(size=(1, self.model.source.width))
        return np.repeat(probe, len(self.samples), axis=0).astype(np.float32)

    def batches(self) -> Iterator[slice]:
        """Batches of samples of similar length."""
        for first in range(0, len(self.samples), BATCH):
            yield slice(first, first + BATCH)


def make_task(options: Options) -> Task:
    """The model, and usable samples of the run."""
    store = Store.open(options.run)
    cell = store.results(options.model, options.dataset)
    entry: Any = cell.entry(ANSWERS)
    usable = (s for s in read_samples(store, options.model, options.dataset) if s.spans.dropped is None)
    samples = sorted(islice(usable, options.samples), key=lambda s: s.spans.answer[1])
    model = load_model(ModelSpec(id=str(unpacked("smollm2-135m", options.models)), name=options.model, dtype="float32"))
    return Task(model, entry["inputs"]["prompt"]["shared_ids"], samples, 2 * model.source.layers // 3)


def fast(task: Task) -> NDArray[np.float32]:
    """Our way, one call for each batch; the prefix is computed in each call."""
    weights, model = task.weights(), task.model
    found = []
    for batch in task.batches():
        some = task.samples[batch]
        places = [sample.spans.answer_last for sample in some]
        found.append(saliencies(model, task.shared_ids, some, places, task.layer, "mlp", weights[batch], "logit", 64.0))
    return np.concatenate(found)


def plain(task: Task) -> NDArray[np.float32]:
    """The plain way."""
    weights = torch.from_numpy(task.weights())
    with attention_as(task.model, "eager"):
        return np.concatenate([_plain_batch(task, task.samples[b], weights[b]) for b in task.batches()])


def _plain_batch(task: Task, samples: Sequence[Sample], weights: torch.Tensor) -> NDArray[np.float32]:
    network = task.model.network
    network.requires_grad_(False)
    texts = [[*task.shared_ids, *s.answer.prompt_ids, *s.answer.answer_ids] for s in samples]
    ids = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
    states: list[torch.Tensor] = []
    module = site_modules(network, task.model.sites, "mlp")[task.layer]
    hook = module.register_forward_hook(lambda module, inputs, output: states.append(output))
    embedded = network.get_input_embeddings()(ids).requires_grad_()
    decoder = network.get_decoder()
    output = decoder(inputs_embeds=embedded, attention_mask=mask, use_cache=False, output_attentions=True)
    hook.remove()
    for each in output.attentions:
        each.retain_grad()
    places = [sample.spans.answer_last for sample in samples]
    read = (states[0][range(len(samples)), places] * weights).sum()
    torch.autograd.backward(read)
    by_layer = np.zeros((len(samples), task.layer + 1), np.float32)
    for layer, each in enumerate(output.attentions[: task.layer + 1]):
        flow = (each.detach() * each.grad).sum(dim=1).abs()
        for i, s in enumerate(samples):
            by_layer[i, layer] = flow[i][s.spans.exact_answer][:, s.spans.exact_question].mean()
    return by_layer


WAYS: dict[str, Callable[[Task], NDArray[np.float32]]] = {"saliencies": fast, "plain": plain}


def timed(task: Task, repeats: int) -> Figures:
    """Time all ways in turns after a round that warms up, and compare their values with the plain way."""
    values = {name: way(task) for name, way in WAYS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(repeats):
        for name in sorted(WAYS, reverse=turn % 2 == 1):
            begin = time.perf_counter()
            WAYS[name](task)
            seconds[name].append(time.perf_counter() - begin)
    ratios = np.array(seconds["saliencies"]) / np.array(seconds["plain"])
    apart = np.abs(values["saliencies"] - values["plain"]).max() / values["plain"].max()
    return {
        "seconds": {name: round(float(np.median(each)), 3) for name, each in seconds.items()},
        "ratio": round(float(np.median(ratios)), 3),
        "ratios": [round(float(each), 3) for each in ratios],
        "apart": float(f"{apart:.2g}"),
    }


def resident(name: str) -> int:
    """Bytes of this process: VmRSS is the present size, VmHWM the largest so far (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def peak(task: Task, way: str) -> float:
    """Peak memory of one way above what the process held before, in megabytes."""
    WAYS[way](replace(task, samples=task.samples[:1]))  # so that code and buffers are there
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here, not from loading
    before = resident("VmRSS")
    WAYS[way](task)
    return round((resident("VmHWM") - before) / 1e6, 1)


@check.step("run", "models")
def cost(options: Options, work: Path) -> Any:
    """Time and peak memory of both ways; or the memory of one way, in a process that this function started."""
    task = make_task(options)
    if options.peak:
        return peak(task, options.peak)
    tokens = {"shared": len(task.shared_ids), "median": float(np.median([s.spans.answer[1] for s in task.samples]))}
    figures = {"samples": len(task.samples), "layer": task.layer, "threads": torch.get_num_threads(), "tokens": tokens}
    figures |= timed(task, options.repeats)
    given = [f"--{name}={getattr(options, name)}" for name in ("run", "models", "model", "dataset", "samples")]
    peaks = {}
    for way in WAYS:
        words = [sys.executable, __file__, *given, "--peak", way]
        peaks[way] = last_json(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["cost"]
    return {**figures, "peak_mb": peaks}


@check.judge
def judge(figures: Figures) -> None:
    """Stop when our way is too slow, or its values are not those of the plain way."""
    if isinstance(figures["cost"], dict):
        assert figures["cost"]["ratio"] <= TARGET, f"more than {TARGET} times the plain way"
        assert figures["cost"]["apart"] < NEAR, "other values"


check.option("--model", "Take the samples of this model of the run", "SmolLM2-135M")
check.option("--dataset", "Take the samples of this set", "triviaqa")
check.option("--samples", "Take this many samples", 48)
check.option("--repeats", "Time every way this many times", 5)
check.option("--peak", "Measure the memory of one way, in this process", choices=sorted(WAYS))

if __name__ == "__main__":
    check()
