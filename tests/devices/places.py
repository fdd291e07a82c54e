"""A tiny model on the CPU, on a pretend accelerator, and over two; and mistakes that these devices must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import anchorscope.answers.generate as generate
import anchorscope.traces.attention as attention
import anchorscope.traces.listening as listening
import anchorscope.traces.mass as mass
import anchorscope.traces.saliency as saliency
import anchorscope.traces.tracer as tracer
from anchorscope.models.load import Model, load_model
from anchorscope.study import ModelSpec
from devices.operations import OPERATIONS, Arrays, Patient, largest_difference
from devices.planted import planted

CPU, ONE, TWO = "CPU", "pretend", "two pretend devices"


def sharded(network: Any) -> dict[str, str]:
    """A device map: the first layer on pretend:0, the others on pretend:1; what comes before and behind with them.

    A head that shares its weights with the embeddings stays with them, as transformers' own maps have it.
    """
    decoder = network.get_decoder()
    inside = next(name for name, module in network.named_children() if module is decoder)
    tied = network.get_output_embeddings().weight is network.get_input_embeddings().weight
    places: dict[str, str] = {}
    for name, module in decoder.named_children():
        if name in ("layers", "h"):
            places |= {f"{inside}.{name}.{i}": f"pretend:{min(i, 1)}" for i in range(len(module))}
        else:
            last = name in ("norm", "ln_f", "final_layer_norm")
            places[f"{inside}.{name}"] = f"pretend:{int(last)}"
    head = next(name for name, module in network.named_children() if module is not decoder)
    return places | {head: "pretend:0" if tied else "pretend:1"}


def patients(folder: Path) -> dict[str, Patient]:
    """The model of a folder in all three places, in float32."""

    def loaded(**place: Any) -> Model:
        return load_model(ModelSpec(id=str(folder), name="tiny", dtype="float32", **place))

    on_cpu = loaded(device="cpu")
    places = sharded(on_cpu.network)
    models = {CPU: on_cpu, ONE: loaded(device="pretend:0"), TWO: loaded(device_map=places)}
    # accelerate carries what a whole model is given to one of its devices, now this one, now that: here to the first
    models[TWO].network._hf_hook.execution_device = "pretend:0"
    return {name: Patient(model) for name, model in models.items()}


def differences(by_place: Mapping[str, Patient], operation: Callable[[Patient], Arrays]) -> dict[str, float]:
    """How far an operation is from the CPU's, in the other two places."""
    expected = operation(by_place[CPU])
    return {name: largest_difference(operation(by_place[name]), expected) for name in (ONE, TWO)}


class Mistake(NamedTuple):
    """A mistake that cannot be seen on a CPU."""

    what: str
    """In words."""
    function: Callable[..., Any]
    """Where."""
    right: str
    """What stands there."""
    wrong: str
    """What would stand there."""
    operation: str
    """What fails then."""
    place: str = ONE
    """Where it fails."""


MISTAKES = (
    Mistake("a mask left on the CPU", attention._Rows._mask, "mask.to(like.device)", "mask", "traces"),
    Mistake(
        "an index left on the CPU", attention._Rows._index, "torch.from_numpy(back).to(device)",
        "torch.from_numpy(back)", "traces",
    ),
    Mistake(
        "slots left on the CPU", tracer._Readings.pick, "slots.to(states.device)", "slots", "map of layers"
    ),
    Mistake("logits left on the device", tracer.Tracer.with_logits, "logits[0].cpu()", "logits[0]", "cut"),
    Mistake(
        "heard states left on the device", listening._HeardBatch.complete, "for by_site, slot in kept]).cpu()",
        "for by_site, slot in kept])", "answers, with their states",
    ),
    Mistake(
        "stop tokens left on the CPU", generate.Generator.__init__, "stop_tokens(model).to(model.device)",
        "stop_tokens(model)", "sampled answers",
    ),
    Mistake(
        "positions left on the CPU", generate.Generator._lay_out, "positions.to(device)", "positions", "given answers"
    ),
    Mistake(
        "attention left on the device", mass.attention_mass, ".mean(dim=0).cpu()", ".mean(dim=0)", "attention mass"
    ),
    Mistake("a gradient's index left on the CPU", saliency._index, ".to(like.device)", "", "saliency"),
    Mistake(
        "which logits to keep, given as a tensor", tracer.Tracer._run,
        '_slots(layout, predict, self.layers)[-1]}', 'torch.from_numpy(_slots(layout, predict, self.layers)[-1])}',
        "traces", TWO,
    ),
    Mistake("what draws a token left on the CPU", generate.draw, "uniforms.to(summed)", "uniforms", "sampled answers"),
)  # fmt: skip


def noticed(mistake: Mistake, by_place: Mapping[str, Patient]) -> str | None:
    """What the device says to a mistake, None if nothing. The CPU must let it pass: else its error is raised."""
    operation = OPERATIONS[mistake.operation]

    def fresh(place: str) -> Patient:
        return Patient(by_place[place].model)  # nothing that was made before

    with planted(mistake.function, mistake.right, mistake.wrong):
        operation(fresh(CPU))
        try:
            operation(fresh(mistake.place))
        except Exception as error:  # noqa: BLE001 torch has several
            return str(error).splitlines()[0]
    return None
