"""Known responses: what the model of a detector answers to some requests of its fit, and what is said of its words.

An endpoint gets the same requests before anything is judged there, and must answer and be judged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scipy.special import expit

from anchorscope.answers.generate import Generator
from anchorscope.models.load import Model
from anchorscope.progress import Progress, silent
from anchorscope.words.detector import KnownResponse, WordDetector
from anchorscope.words.features import features_of
from anchorscope.words.record import Text
from anchorscope.words.request import Requests

COUNT, TOKENS = 32, 48
BATCH_TOKENS = 4_096


def with_known(
    detector: WordDetector, model: Model, texts: Sequence[Text], progress: Progress = silent
) -> WordDetector:
    """The detector with known responses, greedy ones to a request of each of some clusters."""
    requests = Requests(model)
    first = {text.cluster: text for text in reversed(texts) if requests.can_be_sent(text)}
    asked = [requests.as_sent(text) for text in list(first.values())[:COUNT]]
    with progress(f"{model.name}: known responses", None):
        prompts = [requests.prompt(text) for text in asked]
        made = Generator(model, [], TOKENS, BATCH_TOKENS)(prompts) if asked else []
        ends = set(model.tokenizer.all_special_ids)
        said = [
            replace(text, response=model.tokenizer.decode([token for token in one.ids if token not in ends]))
            for text, one in zip(asked, made, strict=True)
        ]
        readings = [reading for reading in detector.reader(model)(said) if not reading.reason]
    known = []
    for reading in readings:
        logits = detector.weights.logits(features_of(reading, detector.weights.groups), {})
        known.append(KnownResponse(replace(reading.text, id=""), tuple(expit(logits).tolist())))
    return replace(detector, known=tuple(known))
