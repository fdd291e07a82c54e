"""Sweep and map by other tools, as a server: `peer_server.py TOOL MODEL_FOLDER DTYPE`, then one JSON object a line.

Run with the Python of an environment that has torch 2.13.0, transformer-lens 4.3.0 and nnsight 0.8.1. A request is

    {"what": "sweep" | "map", "form": "documented" | "tuned", "batch": rows, "cases": FILE.json, "out": FILE or null}

and its answer {"seconds": …}. Cases are {"ids", "cuts": [[key, first query], …], "read"}. `documented`: one prompt at a
time, one pass per layer, as tutorials do it; `tuned`: batches padded at the right, only what is needed is read, and a
cumulative sweep takes two passes. OUT gets `{case}.{site}`: (layer, width) of a sweep's knockout, (cut, layer, width)
of a map.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from safetensors.torch import save_file
from torch import Tensor

SITES = ("attn", "mlp", "resid")
Case = dict[str, Any]
Found = dict[str, Tensor]
"""Site to (layer, row, width)."""


def padded(cases: Sequence[Case]) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids (row, token), the cut edges (row, query, key), and the read positions (row)."""
    size = max(len(case["ids"]) for case in cases)
    ids = torch.ones(len(cases), size, dtype=torch.long)
    cut = torch.zeros(len(cases), size, size, dtype=torch.bool)
    for row, case in enumerate(cases):
        ids[row, : len(case["ids"])] = torch.tensor(case["ids"])
        for key, first in case["cuts"]:
            cut[row, first:, key] = True
    return ids, cut, torch.tensor([case["read"] for case in cases])


class TransformerLens:
    """Hooks on attention scores before the softmax, eager attention."""

    names = {"attn": "blocks.{}.attn.hook_out", "mlp": "blocks.{}.mlp.hook_out", "resid": "blocks.{}.hook_out"}

    def __init__(self, folder: str, dtype: torch.dtype) -> None:
        bridge: Any = importlib.import_module("transformer_lens.model_bridge").TransformerBridge
        self.model = bridge.boot_transformers(folder, device="cpu", dtype=dtype)
        self.layers = int(self.model.cfg.n_layers)

    def run(self, cases: Sequence[Case], layers: Sequence[int], read: Sequence[int], tuned: bool) -> Found:
        """One pass with the cut in some layers, some layers read."""
        ids, cut, places = padded(cases)
        seen: dict[str, Tensor] = {}
        rows = torch.arange(len(cases))

        def sever(scores: Tensor, hook: Any) -> Tensor:
            return scores.masked_fill(cut[:, None], -torch.inf)

        def keep(value: Tensor, hook: Any) -> None:
            seen[hook.name] = value[rows, places].clone()

        hooks: list[tuple[str, Any]] = [(f"blocks.{layer}.attn.hook_attn_scores", sever) for layer in layers]
        if tuned:
            hooks += [(name.format(layer), keep) for name in self.names.values() for layer in read]
            self.model.run_with_hooks(ids, fwd_hooks=hooks, return_type=None)
        else:
            with self.model.hooks(fwd_hooks=hooks):
                _, cache = self.model.run_with_cache(ids, return_type=None)
            for name in self.names.values():
                seen |= {name.format(layer): cache[name.format(layer)][rows, places].clone() for layer in read}
        return {site: torch.stack([seen[name.format(layer)] for layer in read]) for site, name in self.names.items()}


class NNsight:
    """Documented: eager attention, edited through `.source`. Tuned: sdpa, and masks put in front of it."""

    def __init__(self, folder: str, dtype: torch.dtype) -> None:
        self.tool: Any = importlib.import_module("nnsight")
        load = {"task": "text-generation", "dispatch": True, "dtype": dtype}
        self.eager = self.tool.TransformersModel(folder, attn_implementation="eager", **load)
        self.fast = self.tool.TransformersModel(folder, attn_implementation="sdpa", **load)
        self.layers = len(self.eager.model.layers)
        self.dtype = dtype
        config = self.fast.config
        types = getattr(config, "layer_types", None) or ["full_attention"] * self.layers
        self.windows = [config.sliding_window if kind == "sliding_attention" else None for kind in types]

    def run(self, cases: Sequence[Case], layers: Sequence[int], read: Sequence[int], tuned: bool) -> Found:
        """One pass with the cut in some layers, some layers read."""
        ids, cut, places = padded(cases)
        return (
            self._tuned(ids, cut, places, layers, read) if tuned else self._documented(ids, cut, places, layers, read)
        )

    def _documented(
        self, ids: Tensor, cut: Tensor, places: Tensor, layers: Sequence[int], read: Sequence[int]
    ) -> Found:
        tool, model, rows, cut4 = self.tool, self.eager, torch.arange(len(ids)), cut[:, None]
        with model.trace(input_ids=ids):
            attn = tool.save([])
            mlp = tool.save([])
            resid = tool.save([])
            for index, layer in enumerate(model.model.layers):
                if index in layers:
                    softmax = layer.self_attn.source.attention_interface_1.source.nn_functional_softmax_0
                    softmax.input = softmax.input.masked_fill(cut4, -torch.inf)
                if index in read:
                    attn.append(layer.self_attn.output[0][rows, places].clone())
                    mlp.append(layer.mlp.output[rows, places].clone())
                    resid.append(layer.output[rows, places].clone())
        return {"attn": torch.stack(attn), "mlp": torch.stack(mlp), "resid": torch.stack(resid)}

    def _tuned(self, ids: Tensor, cut: Tensor, places: Tensor, layers: Sequence[int], read: Sequence[int]) -> Found:
        tool, model, rows = self.tool, self.fast, torch.arange(len(ids))
        severed = {window: self._mask(cut, window) for window in {self.windows[layer] for layer in layers}}
        with model.trace(input_ids=ids, use_cache=False):
            attn = tool.save([])
            mlp = tool.save([])
            resid = tool.save([])
            for index, layer in enumerate(model.model.layers):
                if index in layers:
                    args, kwargs = layer.self_attn.inputs
                    layer.self_attn.inputs = (args, {**kwargs, "attention_mask": severed[self.windows[index]]})
                if index in read:
                    attn.append(layer.self_attn.output[0][rows, places].clone())
                    mlp.append(layer.mlp.output[rows, places].clone())
                    resid.append(layer.output[rows, places].clone())
        return {"attn": torch.stack(attn), "mlp": torch.stack(mlp), "resid": torch.stack(resid)}

    def _mask(self, cut: Tensor, window: int | None) -> Tensor:
        place = torch.arange(cut.shape[1])
        seen = place[None, :] <= place[:, None]
        if window is not None:
            seen &= place[:, None] - place[None, :] < window
        return torch.zeros(cut.shape, dtype=self.dtype).masked_fill(~(seen & ~cut), -torch.inf)[:, None]


TOOLS: dict[str, Any] = {"transformer_lens": TransformerLens, "nnsight": NNsight}


def work(tool: Any, what: str, form: str, cases: Sequence[Case], batch: int) -> dict[str, Tensor]:
    """All cases once."""
    every, tuned = list(range(tool.layers)), form == "tuned"
    size = batch if tuned else 1
    order = sorted(range(len(cases)), key=lambda i: len(cases[i]["ids"])) if tuned else list(range(len(cases)))
    found: dict[str, Tensor] = {}
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        some = [cases[i] for i in numbers]
        tool.run(some, [], every, tuned)  # clean
        if what == "map":
            parts = [tool.run(some, [at], every, tuned) for at in every]
            got = {site: torch.stack([part[site] for part in parts]) for site in SITES}  # (cut, layer, row, width)
        elif tuned:
            got = tool.run(some, every, every, tuned)
        else:
            parts = [tool.run(some, every[: at + 1], [at], tuned) for at in every]
            got = {site: torch.cat([part[site] for part in parts]) for site in SITES}
        for site in SITES:
            for i, number in enumerate(numbers):
                found[f"{number}.{site}"] = got[site][..., i, :].float().contiguous()
    return found


def main() -> None:
    """Answer requests until there are no more."""
    name, folder, dtype = sys.argv[1:]
    torch.set_grad_enabled(False)
    answers, sys.stdout = sys.stdout, sys.stderr  # tools may print
    tool = TOOLS[name](folder, getattr(torch, dtype))
    print(json.dumps({"ready": name}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        cases = json.loads(Path(request["cases"]).read_text())
        start = time.perf_counter()
        found = work(tool, request["what"], request["form"], cases, request["batch"])
        seconds = time.perf_counter() - start
        if request.get("out"):
            save_file(found, request["out"])
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
