"""Questions and answers made up from syllables, in the form of the four sets.

Lengths, ids and accepted answers are like those of the real ones. Some texts are hostile: what a page shows of them
must be text, never markup or script (HOSTILE); others are only awkward: quotes, other scripts, direction marks, a very
long word (AWKWARD).
"""

from __future__ import annotations

import json
import random
import re
import zlib
from typing import Any

from anchorscope.answers.record import Answer
from anchorscope.questions.record import Question
from anchorscope.questions.row import group_key
from anchorscope.spans.record import Spans

HOSTILE = (
    "</script><script>window.hostile = 1</script>",
    '<img src=x onerror="window.hostile = 2">',
    '"><svg onload="window.hostile = 3"></svg>',
    "<b id=hostile>bold</b>",
    "<!-- <script> <!--",
    "javascript:window.hostile=4",
    "{{ 7 * 7 }} {% raw %} ${window.hostile=5}",
    "&lt;i&gt; &amp;amp; &#x3C;u&#x3E;",
    "</style></title></textarea><h1 id=hostile>",
    "%{hovertext}<br><extra></extra>",
)
"""Pieces that would do something if a page took them for markup; window.hostile and #hostile tell."""
FOREIGN = (
    "<script>window.foreign = 1</script>",
    "<script src='data:text/javascript,window.foreign = 2'></script>",
    "<svg onload='window.foreign = 3'></svg>",
    "<base href='https://example.org/'>",
)
"""Markup that does something in a page without a policy: a script of each kind, and another base for addresses."""
AWKWARD = (
    "Þórður Ægisson", "Łódź Żabka", "北京市の川", "Владимир Ильин", "مدينة القاهرة", "‮flipped‬", "e\u0301toile",
    "👩🏽‍🚀 Ada", 'Bob "the Hat" O\'Neil', "back\\slash", "line\u2028break", "tab\there", "Ω" * 70,
    "=SUM(A1:A9)", "null", "-0",
)  # fmt: skip
STARTS = (
    "bar", "cal", "dor", "el", "fen", "gar", "hol", "ist", "jon", "kel", "lor", "mar", "nor", "ost", "pel", "quin",
    "ros", "sel", "tor", "ul", "ven", "wil", "yor", "zan",
)  # fmt: skip
MIDDLES = (
    "a", "e", "i", "o", "u", "an", "en", "il", "or", "us", "ari", "eno", "ila",
)  # fmt: skip
ENDS = (
    "bach", "bury", "dal", "field", "ford", "grad", "ham", "mere", "mont", "nik", "ova", "rick", "son", "stad", "ton",
    "vale", "ville", "wick", "wood", "ski",
)  # fmt: skip
THINGS = (
    "river", "city", "film", "novel", "song", "bridge", "island", "opera", "museum", "planet", "poem", "ship",
    "castle", "painting", "club",
)  # fmt: skip
DEEDS = (
    "wrote", "built", "founded", "crossed", "painted", "directed", "won", "named", "discovered", "sang", "ruled",
    "lost",
)  # fmt: skip
JOBS = (
    "politician", "journalist", "painter", "composer", "footballer", "biologist", "lawyer", "actor", "historian",
    "engineer",
)  # fmt: skip
STOP = {
    "what", "which", "who", "is", "the", "of", "in", "was", "did", "a", "and", "are", "both", "by", "or", "that", "to",
    "on", "when", "where", "does", "for", "with", "whose", "also", "as",
}  # fmt: skip
PREFIX = 69  # tokens of the shots, as of SmolLM2


class Texts:
    """Draws texts. The same seed draws the same texts."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def name(self) -> str:
        """A proper name of one to three words; now and then a hostile or awkward one."""
        rng = self.rng
        if rng.random() < 0.02:
            return rng.choice(HOSTILE)
        if rng.random() < 0.03:
            return rng.choice(AWKWARD)
        words = [
            (rng.choice(STARTS) + rng.choice(MIDDLES) + rng.choice(ENDS)).capitalize()
            for _ in range(rng.choices((1, 2, 3), (3, 5, 1))[0])
        ]
        return " ".join(words)

    def also(self, name: str) -> list[str]:
        """Accepted answers: the name and its aliases."""
        rng = self.rng
        other = [f"The {name}", f"{name} (disambiguation)", f"{name}, {self.name()}", name.split()[-1], name.upper()]
        return list(dict.fromkeys([name, *rng.sample(other, rng.choices(range(5), (4, 3, 2, 1, 1))[0])]))

    def question(self, dataset: str, number: int) -> Question:
        """One question of a set."""
        rng = self.rng
        subject, relation, popularity, extra = None, None, None, {}
        if dataset == "popqa":
            subject, popularity = self.name(), float(round(rng.lognormvariate(7, 2)) + 1)
            text, relation, answers = self._property(subject)
            identifier, extra = f"popqa-test-{number}", {"wiki_title": subject, "wikidata_id": f"Q{number + 7}"}
        elif dataset == "triviaqa":
            text = (
                f"Which {rng.choice(THINGS)} was {rng.choice(DEEDS)} by {self.name()} "
                f"{rng.choice(['in', 'before', 'after'])} {rng.randint(1066, 2020)}?"
            )
            identifier, answers, extra = f"dpr-trivia-test-{number}", self.also(self.name()), {"split": "made-up"}
        elif dataset == "hotpotqa":
            text, answers, kind = self._hops()
            identifier, extra = f"5a{zlib.crc32(b'h%d' % number):08x}{number:014x}", {"type": kind}
        else:
            text = f"{rng.choice(['who', 'when', 'where'])} {rng.choice(DEEDS)} the {rng.choice(THINGS)} {self.name()}"
            text = text.lower() + rng.choice(["", "", f" in season {rng.randint(1, 9)}"])
            identifier, answers, extra = f"nq-open-dev-{number}", self.also(self.name()), {"split": "made-up"}
        text = " ".join(text.split())
        return Question(
            identifier, text, answers, subject, relation, popularity, None, group_key(text),
            group_key(subject) if subject else None, json.dumps(extra, ensure_ascii=False),
        )  # fmt: skip

    def _property(self, subject: str) -> tuple[str, str, list[str]]:
        """A question about a subject, its relation, and accepted answers."""
        rng = self.rng
        relation = rng.choice(["occupation", "place of birth", "author", "genre", "capital"])
        text = {
            "occupation": f"What is {subject}'s occupation?",
            "place of birth": f"In what city was {subject} born?",
            "author": f"Who is the author of {subject}?",
            "genre": f"What genre is {subject}?",
            "capital": f"What is the capital of {subject}?",
        }[relation]
        return text, relation, self.also(rng.choice(JOBS) if relation == "occupation" else self.name())

    def _hops(self) -> tuple[str, list[str], str]:
        """A long question, its accepted answers, and its kind."""
        rng, one, other, thing = self.rng, self.name(), self.name(), self.rng.choice(THINGS)
        if rng.random() < 0.08:
            return f"Are {one} and {other} both the name of a {thing}?", [rng.choice(["yes", "no"])], "comparison"
        if rng.random() < 0.1:
            return f"Which {thing} is older, {one} or {other}?", [rng.choice([one, other])], "comparison"
        text = (
            f"The {thing} that {one} {rng.choice(DEEDS)} in {rng.randint(1800, 2020)} was also "
            f"{rng.choice(DEEDS)} by the {rng.choice(JOBS)} of which {rng.choice(THINGS)} near {other}?"
        )
        return text, self.also(self.name()), "bridge"

    def said(self, question: Question, right: bool) -> str:
        """An answer of the model: an accepted one, or a wrong one."""
        rng = self.rng
        if right:
            return rng.choice([question.answers[0], question.answers[0], rng.choice(question.answers)])
        if question.answers[0] in ("yes", "no"):
            return "no" if question.answers[0] == "yes" else "yes"
        if rng.random() < 0.04:
            return " ".join(question.question.split()[1:4])  # an echo of the question
        return rng.choice(JOBS).capitalize() if question.relation == "occupation" else self.name()

    def answer(self, question: Question, text: str, right: bool) -> Answer:
        """The row of the `answers` table; a word is a token."""
        rng = self.rng
        ids = [_token(word) for word in re.findall(r"\S+", text)]
        asked = [65, 42, *(_token(word) for word in question.question.split()), 198, 49, 42]
        mean = 0.8 if right else 1.6
        logprobs = [-rng.expovariate(1 / mean) for _ in ids]
        return Answer(question.id, None, asked, ids, logprobs, text, rng.random() < 0.95, True, None)

    def spans(self, question: Question, answer: Answer) -> Spans:
        """The row of the `spans` table: content words are exact question tokens, the whole answer is exact."""
        first = PREFIX + 2
        words = list(re.finditer(r"\S+", question.question))
        exact = [i for i, word in enumerate(words) if re.sub(r"\W", "", word.group()).lower() not in STOP]
        rest = [i for i in range(len(words)) if i not in exact]
        start = PREFIX + len(answer.prompt_ids)
        end = start + len(answer.answer_ids)
        dropped = "the answer is empty" if start == end else None if exact and rest else "no control tokens"
        if dropped:
            nothing: dict[str, Any] = {name: [] for name in LISTS}
            return Spans(id=question.id, answer_last=-1, final=-1, prompt_last=-1, dropped=dropped, **nothing)
        tokens, others = [first + i for i in exact], [first + i for i in rest]
        pairs = min(len(tokens), len(others))
        marks = [place for i in exact for place in words[i].span()]
        return Spans(
            id=question.id,
            prefix=[0, PREFIX],
            context=[],
            question=[PREFIX, start - 3],
            cue=[start - 3, start],
            answer=[start, end],
            exact_question=tokens,
            exact_question_text=marks,
            exact_answer=list(range(start, end)),
            exact_answer_text=[0, len(answer.answer)],
            answer_last=end - 1,
            final=end - 1,
            prompt_last=start - 1,
            control_question_exact=tokens[:pairs],
            control_question_control=others[:pairs],
            control_random_exact=tokens[:pairs],
            control_random_control=others[:pairs],
            control_prefix_exact=tokens,
            control_prefix_control=list(range(PREFIX - len(tokens), PREFIX)),
            evidence=[],
            control_evidence_exact=[],
            control_evidence_control=[],
            dropped=None,
        )


LISTS = [name for name, hint in Spans.__annotations__.items() if hint == "list[int]"]


def _token(word: str) -> int:
    return zlib.crc32(word.encode()) % 49_000 + 100
