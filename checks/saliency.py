"""What saliency costs, against the plain way to it. Its last line is JSON.

`saliencies` and the plain way get the same samples of a run, in the same batches, and the same random probe at the MLP
of a layer in the middle, at the last exact answer token. The plain way is what one would write first: eager attention,
the whole sequences padded to the longest, few-shot examples included; parameters frozen, the embeddings with a
gradient; one forward pass of the whole model with output_attentions, every map retaining its gradient, one backward
pass, and the edges picked from the maps. Times are taken in turn and repeated, the ratio is the median of the pairs'.
Memory is the peak of a process of its own, above what it held before the first batch. `unshared` is `saliencies` told
of no shared prefix, so that what sharing it saves can be told from the rest.
"""

from __future__ import annotations

import argparse
import json
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
from anchorscope.traces.saliency import Of, saliencies

BATCH = 16  # samples that go through together
TARGET = 1.5  # times what the plain way takes, at most
NEAR = 1e-4  # how far apart the two may be, relative to the largest


@dataclass(frozen=True)
class Task:
    """What is measured."""

    model: Model
    """The model, in float32."""
    shared_ids: list[int]
    """What all prompts start with."""
    samples: list[Sample]
    """By length."""
    layer: int
    """The anchor."""
    of: Of
    """What the gradient is of."""

    def weights(self) -> NDArray[np.float32]:
        """(sample, width): a probe, the same for each."""
        probe = np.random.default_rng(0).normal(size=(1, self.model.source.width))
        return np.repeat(probe, len(self.samples), axis=0).astype(np.float32)

    def batches(self) -> Iterator[slice]:
        """As many samples of similar length at a time."""
        for first in range(0, len(self.samples), BATCH):
            yield slice(first, first + BATCH)


def make_task(options: argparse.Namespace) -> Task:
    """The model, and samples of the run that can be used."""
    store = Store.open(options.run)
    cell = store.results(options.model, options.dataset)
    entry: Any = cell.entry(ANSWERS)
    usable = (s for s in read_samples(store, options.model, options.dataset) if s.spans.dropped is None)
    samples = sorted(islice(usable, options.samples), key=lambda s: s.spans.answer[1])
    model = load_model(ModelSpec(id=str(options.weights), name=options.model, dtype="float32"))
    return Task(model, entry["inputs"]["prompt"]["shared_ids"], samples, 2 * model.source.layers // 3, options.of)


def fast(task: Task) -> NDArray[np.float32]:
    """The way that is measured, a call for each batch: the prefix is computed each time."""
    weights, model = task.weights(), task.model
    found = []
    for batch in task.batches():
        some = task.samples[batch]
        places = [sample.spans.answer_last for sample in some]
        found.append(saliencies(model, task.shared_ids, some, places, task.layer, "mlp", weights[batch], task.of, 64.0))
    return np.concatenate(found)


def plain(task: Task) -> NDArray[np.float32]:
    """The obvious way."""
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
    run = network if task.of == "loss" else network.get_decoder()
    output = run(inputs_embeds=embedded, attention_mask=mask, use_cache=False, output_attentions=True)
    hook.remove()
    for each in output.attentions:
        each.retain_grad()
    rows = range(len(samples))
    if task.of == "logit":
        read = (states[0][rows, [s.spans.answer_last for s in samples]] * weights).sum()
    else:
        logprobs = output.logits[:, :-1].log_softmax(dim=-1)
        picked = logprobs.gather(2, ids[:, 1:, None])[:, :, 0]
        read = torch.stack([picked[i, s.spans.answer[0] - 1 : len(texts[i]) - 1].sum() for i, s in enumerate(samples)])
        read = read.sum()
    torch.autograd.backward(read)
    by_layer = np.zeros((len(samples), task.layer + 1), np.float32)
    for layer, each in enumerate(output.attentions[: task.layer + 1]):
        flow = (each.detach() * each.grad).sum(dim=1).abs()
        for i, s in enumerate(samples):
            by_layer[i, layer] = flow[i][s.spans.exact_answer][:, s.spans.exact_question].mean()
    return by_layer


def unshared(task: Task) -> NDArray[np.float32]:
    """As `fast`, but the prefix is computed for every sample anew: what is won without it."""
    samples = []
    for sample in task.samples:
        answer = replace(sample.answer, prompt_ids=[*task.shared_ids, *sample.answer.prompt_ids])
        samples.append(replace(sample, answer=answer))
    return fast(replace(task, shared_ids=[], samples=samples))


WAYS: dict[str, Callable[[Task], NDArray[np.float32]]] = {"saliencies": fast, "plain": plain, "unshared": unshared}


def timed(task: Task, repeats: int) -> dict[str, Any]:
    """All in turn, after a round for warming up; how near they are to the plain way."""
    values = {name: way(task) for name, way in WAYS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(repeats):
        for name in sorted(WAYS, reverse=turn % 2 == 1):
            begin = time.perf_counter()
            WAYS[name](task)
            seconds[name].append(time.perf_counter() - begin)
    figures: dict[str, Any] = {"seconds": {name: round(float(np.median(each)), 3) for name, each in seconds.items()}}
    for name in ("saliencies", "unshared"):
        ratios = np.array(seconds[name]) / np.array(seconds["plain"])
        apart = np.abs(values[name] - values["plain"]).max() / values["plain"].max()
        figures[name] = {
            "ratio": round(float(np.median(ratios)), 3),
            "ratios": [round(float(each), 3) for each in ratios],
            "apart": float(f"{apart:.2g}"),
        }
    return figures


def resident(name: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def peak(task: Task, way: str) -> float:
    """How much more than before a way holds at most, in MB."""
    WAYS[way](replace(task, samples=task.samples[:1]))  # so that code and buffers are there
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here, not from loading
    before = resident("VmRSS")
    WAYS[way](task)
    return round((resident("VmHWM") - before) / 1e6, 1)


def main() -> None:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("/work/runs/trust"), help="a run with samples; only read")
    parser.add_argument("--model", default="SmolLM2-135M", help="its name in the run")
    parser.add_argument("--dataset", default="triviaqa")
    cache = Path.home() / ".cache" / "anchorscope-checks"
    parser.add_argument("--weights", type=Path, default=cache / "SmolLM2-135M-Instruct", help="see checks/weights.py")
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--of", choices=["logit", "loss"], default="logit")
    parser.add_argument("--peak", choices=sorted(WAYS), help="measure the memory of one way, in this process")
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak(make_task(options), options.peak)))
        return
    figures: dict[str, Any] = {}
    for of in ("logit", "loss"):
        options.of = of
        task = make_task(options)
        lengths = [len(task.shared_ids), *(s.spans.answer[1] for s in task.samples)]
        figures |= {"samples": len(task.samples), "anchor": task.layer, "threads": torch.get_num_threads()}
        figures |= {"tokens": {"shared": lengths[0], "all, median": float(np.median(lengths[1:]))}}
        figures[of] = timed(task, options.repeats)
        given = [
            f"--{name}={getattr(options, name)}" for name in ("run", "model", "dataset", "weights", "samples", "of")
        ]
        for way in WAYS:
            command = [sys.executable, __file__, *given, "--peak", way]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures[of].setdefault("peak_mb", {})[way] = json.loads(done.stdout.splitlines()[-1])
        print(f"{of}: {json.dumps(figures[of])}", flush=True)
    for of in ("logit", "loss"):
        assert figures[of]["saliencies"]["ratio"] <= TARGET, f"{of}: more than {TARGET} times the plain way"
        assert max(figures[of][name]["apart"] for name in ("saliencies", "unshared")) < NEAR, f"{of}: other numbers"
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
