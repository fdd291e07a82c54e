"""The checks of text and tokens in the self-test of a model: its BOS, its spans, and whether the tokenizer is its own.

A tokenizer of another model gives tokens that mean something else to this one. Every pass then runs without an error,
and every number is wrong. What the model itself makes of the text shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from anchorscope.answers.generate import Generator
from anchorscope.errors import printable
from anchorscope.models.load import Model
from anchorscope.spans.words import content_words

if TYPE_CHECKING:
    from anchorscope.traces.doctor import Doctor

CASES = (
    ("Which ocean lies between Africa and Australia?", "Indian Ocean"),
    ("Who composed the opera Don Giovanni, first performed at the Estates Theatre in Prague?", "Mozart"),
    ("How many strings does a violin have?", "four"),
)
LONGEST = 16  # tokens of the model's own continuation
REPEATED = 32  # tokens that are repeated to see whether a model is trained
GAINED = 2.0  # nats per token by which the second copy is more likely: 11 for SmolLM2, under 0.2 without training
OF_CHANCE = 0.5  # of chance, -log of the vocabulary: SmolLM2 reads its own tokens at 0.14, another model's at 0.8 to 1


class Failed(Exception):  # noqa: N818 — not an error of ours: it carries what a check found
    """Why a check failed."""


class NotTried(Exception):  # noqa: N818 — not an error either
    """Why a check was left out."""


def one_bos(doctor: Doctor) -> str:
    """Exactly one BOS where the model wants one, none where it does not."""
    bos = doctor.model.tokenizer.bos_token_id
    wanted = 1 if doctor.model.wants_bos else 0
    for prompt in doctor.prompts:
        leading = 0
        while bos is not None and leading < len(prompt.ids) and prompt.ids[leading] == bos:
            leading += 1
        if doctor.model.wants_bos and leading != wanted:
            raise Failed(f"the prompt starts with {leading} BOS tokens instead of {wanted}")
        if not doctor.model.wants_bos and leading > 1:
            raise Failed(f"the prompt starts with {leading} BOS tokens")
    return f"{wanted} in front" if wanted else "none wanted"


def spans_round_trip(doctor: Doctor) -> str:
    """The exact tokens, decoded, say the question's content words and the answer."""
    counted = 0
    for (question, answer), ids, spans in zip(CASES, doctor.ids, doctor.spans, strict=True):
        if spans.dropped is not None:
            raise Failed(f"'{question}': {spans.dropped}")
        decoded = doctor.model.tokenizer.decode([ids[token] for token in spans.exact_question])
        for start, end in content_words(question):
            if question[start:end] not in decoded:
                raise Failed(
                    f"the exact question tokens of '{question}' say '{decoded}', without '{question[start:end]}'"
                )
        decoded = doctor.model.tokenizer.decode([ids[token] for token in spans.exact_answer])
        if decoded.strip() != answer:
            raise Failed(f"the exact answer tokens say '{decoded.strip()}' instead of '{answer}'")
        counted += len(spans.exact_question)
    return f"{counted} exact question tokens decoded"


def own_tokenizer(doctor: Doctor) -> str:
    """The model finds its own continuation likely when that is written out and read back as text.

    The text is a prompt and what the model says next. Of a trained model with its own tokenizer, the same tokens come
    back, and their mean log-probability is far above chance. An untrained model finds no text likely.
    """
    model = doctor.model
    for prompt in doctor.prompts:
        said = _decoded(model, _encoded(model, prompt.text)).strip()
        if said != prompt.text.strip():
            raise Failed(f"the prompt, as tokens and back, says '{printable(said[-60:])}' at its end")
    if not repeats(model):
        raise NotTried("not tried: the model does not continue a repeated text, as untrained models do not")
    answers = Generator(model, doctor.prompter.shared_ids, LONGEST, 8192)([prompt.ids for prompt in doctor.prompts])
    same, likely = 0, list[torch.Tensor]()
    for prompt, answer in zip(doctor.prompts, answers, strict=True):
        made = [*prompt.ids, *answer.ids]
        again = [*made[: prompt.bos], *_encoded(model, _decoded(model, made[prompt.bos :]))]
        same += again == made
        likely.append(_logprobs(model, again))
    mean, chance = float(torch.cat(likely).mean()), -math.log(_rows(model))
    text = f"mean log-probability of a text {mean:.1f} per token, by chance {chance:.1f}"
    if not mean > OF_CHANCE * chance:
        raise Failed(text)
    if not same:
        raise Failed("what the model says never comes back as the same tokens when it is read as text")
    return f"{same} of {len(answers)} continuations came back as the same tokens; {text}"


def repeats(model: Model) -> bool:
    """Whether a model expects random tokens to come again where they were repeated. Every trained one does."""
    drawn = torch.randint(_rows(model), (REPEATED,), generator=torch.Generator().manual_seed(0)).tolist()
    likely = _logprobs(model, [*drawn, *drawn])
    gained: torch.Tensor = likely[REPEATED:].mean() - likely[: REPEATED - 1].mean()
    return float(gained) > GAINED


@torch.inference_mode()
def _logprobs(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """(token - 1,): the log-probability of each token after the first, given those before it."""
    given = torch.tensor([list(ids)], device=model.device)
    logits = model.network(given, use_cache=False).logits[0, :-1]
    return logits.double().log_softmax(-1).gather(1, given[0, 1:, None].to(logits.device))[:, 0].cpu()


def _rows(model: Model) -> int:
    return int(model.network.get_input_embeddings().weight.shape[0])


def _encoded(model: Model, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False).input_ids)


def _decoded(model: Model, ids: Sequence[int]) -> str:
    return str(model.tokenizer.decode(ids, clean_up_tokenization_spaces=False))
