"""Whether an answer declines to answer, such as *I don't know*. Then there is nothing in it to be right or wrong.

The rule is narrow. It is about the whole answer, so one that goes on with a guess (*I'm not sure, but I think it is
Paris*) is no abstention. Sentences are matched as people write them, so a title such as *I Don't Know How She Does It*
is an answer like any other.
"""

from __future__ import annotations

import re

_PHRASE = re.compile(
    r"""(?:i\ )?(?:do\ not|don't|dont)\ know(?:\ (?:it|that|this))?
    |idk
    |(?:i\ have\ )?no\ idea
    |(?:it\ is\ |it's\ )?(?:unknown|not\ known|unclear)
    |(?:i\ am\ |i'm\ )?(?:not\ sure|unsure|not\ certain)
    |(?:i\ )?(?:cannot|can't)\ (?:say|tell|answer)
    |no\ answer|n/a
    |not\ (?:mentioned|stated|specified|available)
    |(?:not\ enough|insufficient)\ information""",
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCE = re.compile(
    r"""(?:
     [Ii]\ (?:really\ |just\ |honestly\ |simply\ )?(?:do\ not|don't|dont)\ (?:know|remember|recall)
    |[Ii]\ (?:do\ not|don't)\ have\ (?:any\ |enough\ |the\ |that\ )?(?:idea|information|knowledge)
    |[Ii]\ (?:cannot|can't|could\ not|couldn't)\ (?:answer|say|tell|find|determine|remember|recall|provide)
    |(?:[Ii]\ am|[Ii]'m)\ (?:not\ sure|unsure|not\ certain|unable\ to|not\ able\ to|not\ familiar\ with|not\ aware\ of)
    |[Ii]\ have\ no\ (?:idea|information|knowledge|clue)
    |[Tt]here\ is\ (?:no|not\ enough|insufficient)\ information
    |[Tt]he\ (?:passage|text|context|question)\ (?:does\ not|doesn't)\ (?:say|state|mention|specify|contain|provide)
    )\b.*""",
    re.VERBOSE,
)
_GUESS = re.compile(
    r"\b(?:but|however|though|although|maybe|perhaps|probably|possibly|likely|(?:i|my) (?:think|believe|guess))\b",
    re.IGNORECASE,
)
_APOLOGY = re.compile(r"(?:(?:I'm|I am) )?sorry[,.]? (?:but )?", re.IGNORECASE)


def is_abstention(answer: str) -> bool:
    """Whether an answer says only that it gives none."""
    text = " ".join(answer.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split()).rstrip(" .!")
    if apology := _APOLOGY.match(text):
        text = text[apology.end() :]
    if _PHRASE.fullmatch(text):
        return True
    return _SENTENCE.fullmatch(text) is not None and not _GUESS.search(text)
