"""The self-test before a run: a model that fails a check is refused, one that passed is remembered."""

from __future__ import annotations

from anchorscope.errors import ModelError
from anchorscope.models.cache import key_of, known, remember
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.store.rundir import versions
from anchorscope.traces.doctor import Doctor


def require_health(model: Model, prompter: Prompter) -> None:
    """Examine a model quickly, and refuse it if a check fails.

    A model that passed is not examined again with the same weights, prompt, device and software.
    """
    place = [str(model.device), model.spec.device_map, getattr(model.network, "hf_device_map", None)]
    named = {"model": model.fingerprint, "prompt": prompter.describe(), "device": place}
    key = key_of({**named, "software": versions()})
    if model.source.kind != "object" and known("examined", key):
        return
    checks = Doctor(model, prompter).examine(quick=True)
    for check in checks:
        if check.passed is False:
            raise ModelError(f"{model.name} fails the check '{check.name}': {check.detail}", check.advice)
    remember("examined", key, {"model": model.name, "checks": {check.name: check.detail for check in checks}})
