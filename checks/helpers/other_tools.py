"""Attention knockout by other tools: `other_tools.py TOOL MODEL_FOLDER CASES.json OUT.safetensors`.

TOOL is `transformer_lens` or `nnsight`. Run with the Python of an environment that has them, never anchorscope's own:
torch 2.13.0, transformer-lens 4.3.0, nnsight 0.8.1 (both then share transformers 5.22.2). CASES.json is a list of

    {"ids": [token ids of the whole sequence, BOS included where wanted],
     "cuts": [[key, first_query], ...],   token `key` is hidden from every query >= first_query, never from itself
     "layers": [layers in which the cut holds],
     "reads": [positions]}

OUT holds `{case}.{site}`, float32, (layer, read, width), for the sites attn and mlp (a block's output before any
post-norm) and resid (a layer's output). One case a pass, no padding, float32. The last line printed is one JSON object.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from safetensors.torch import save_file
from torch import Tensor

SITES = ("attn", "mlp", "resid")
Found = dict[str, list[Tensor]]
"""Site to one (read, width) tensor per layer."""


def hidden(case: dict[str, Any]) -> Tensor:
    """The cut edges as a (query, key) matrix of booleans."""
    size = len(case["ids"])
    cut = torch.zeros(size, size, dtype=torch.bool)
    for key, first_query in case["cuts"]:
        cut[first_query:, key] = True
    return cut.fill_diagonal_(False)


def transformer_lens(folder: str) -> Callable[[dict[str, Any]], Found]:
    """TransformerLens 4: a bridge over the folder's model, unprocessed weights, hooks on scores before the softmax."""
    bridge: Any = importlib.import_module("transformer_lens.model_bridge").TransformerBridge
    model = bridge.boot_transformers(folder, device="cpu", dtype=torch.float32)
    # not hook_attn_out and hook_mlp_out: where a model has post-norms (Gemma) these are aliases of the norms' outputs
    names = {"attn": "blocks.{}.attn.hook_out", "mlp": "blocks.{}.mlp.hook_out", "resid": "blocks.{}.hook_out"}

    def run(case: dict[str, Any]) -> Found:
        cut = hidden(case)
        seen: dict[str, Tensor] = {}
        cut_in = set()

        def sever(scores: Tensor, hook: Any) -> Tensor:
            cut_in.add(hook.name)
            return scores.masked_fill(cut, -torch.inf)

        def read(value: Tensor, hook: Any) -> None:
            seen[hook.name] = value[0, case["reads"]].clone()

        count = int(model.cfg.n_layers)
        severed = {f"blocks.{layer}.attn.hook_attn_scores" for layer in case["layers"]}
        hooks: list[tuple[str, Any]] = [(name, sever) for name in sorted(severed)]
        hooks += [(name.format(layer), read) for name in names.values() for layer in range(count)]
        model.run_with_hooks(torch.tensor([case["ids"]]), fwd_hooks=hooks, return_type=None)
        assert cut_in == severed, "a hook on attention scores did not fire"
        return {site: [seen[name.format(layer)] for layer in range(count)] for site, name in names.items()}

    return run


def nnsight(folder: str) -> Callable[[dict[str, Any]], Found]:
    """The tool nnsight: eager attention, edited through `.source` where its scores enter the softmax."""
    tool: Any = importlib.import_module("nnsight")
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = tool.TransformersModel(folder, task="text-generation", dispatch=True, **options)

    def run(case: dict[str, Any]) -> Found:
        cut = hidden(case)
        reads = case["reads"]
        layers = set(case["layers"])
        ids = torch.tensor([case["ids"]])
        with model.trace(input_ids=ids):
            attn = tool.save([])
            mlp = tool.save([])
            resid = tool.save([])
            for index, layer in enumerate(model.model.layers):  # values must be asked for in the order they arise
                if index in layers:
                    # _0 is the line that binds the name, _1 the call
                    softmax = layer.self_attn.source.attention_interface_1.source.nn_functional_softmax_0
                    softmax.input = softmax.input.masked_fill(cut, -torch.inf)
                attn.append(layer.self_attn.output[0][0, reads].clone())
                mlp.append(layer.mlp.output[0, reads].clone())
                resid.append(layer.output[0, reads].clone())
        return {"attn": attn, "mlp": mlp, "resid": resid}

    return run


TOOLS = {"transformer_lens": transformer_lens, "nnsight": nnsight}


def main() -> None:
    """Run every case and save what was read."""
    tool, folder, cases, out = sys.argv[1:]
    torch.set_grad_enabled(False)
    start = time.perf_counter()
    run = TOOLS[tool](folder)
    load = time.perf_counter() - start
    tensors: dict[str, Tensor] = {}
    seconds = []
    for number, case in enumerate(json.loads(Path(cases).read_text())):
        start = time.perf_counter()
        found = run(case)
        seconds.append(round(time.perf_counter() - start, 3))
        tensors |= {f"{number}.{site}": torch.stack(found[site]).float().contiguous() for site in SITES}
    save_file(tensors, out)
    versions = {name: importlib.metadata.version(name) for name in (tool.replace("_", "-"), "transformers", "torch")}
    print(json.dumps({"tool": tool, "versions": versions, "load_seconds": round(load, 2), "seconds": seconds}))


if __name__ == "__main__":
    main()
