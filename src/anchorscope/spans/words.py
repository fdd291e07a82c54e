"""What can be said of a text without a model: its words, its content words, and the entity of a short answer.

All of it is English, and a function of the text alone. The rule for answers in particular sees neither the accepted
answers nor the grade: a rule that did would put the label into the position that is read.
"""

from __future__ import annotations

import re
import unicodedata

Range = tuple[int, int]


def _listed(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


FUNCTION_WORDS = _listed(
    # articles, demonstratives, quantifiers
    """a an the this that these those some any each every either neither both all no none such same other another
    many much more most few fewer less least several enough""",
    # pronouns; not "us", which in questions is the country (NQ is in lower case)
    """i me my mine myself you your yours yourself he him his himself she her hers herself it its itself we our ours
    ourselves they them their theirs themselves one ones someone anyone everyone somebody anybody everybody nobody
    something anything everything nothing there here""",
    # question words and relatives
    """who whom whose what which when where why how whoever whatever whichever whenever wherever""",
    # auxiliaries and their contractions, joined ("don't") and as NQ splits them ("do n't", "ca n't")
    """am is are was were be been being do does did doing done have has had having can could may might must shall
    should will would ought ain't aren't can't cannot couldn't didn't doesn't don't hadn't hasn't haven't isn't
    mustn't needn't shan't shouldn't wasn't weren't won't wouldn't n't ca wo i'm i've i'll i'd you're you've you'll
    you'd he'll he'd she'll she'd it'll it'd we're we've we'll we'd they're they've they'll they'd who're who've
    who'll who'd that'll that'd there'll what're""",
    # prepositions
    """about above across after against along alongside amid among amongst around as at before behind below beneath
    beside besides between beyond by despite down during except for from in inside into like near of off on onto
    opposite out outside over past per since than through throughout till to toward towards under underneath until up
    upon via versus vs with within without""",
    # conjunctions
    """and but or nor so yet if unless because although though while whereas whether once lest""",
    # adverbs without content of their own
    """not also too very just only even ever then thus hence again else quite rather really still already instead
    however therefore almost""",
)
"""English words of the closed classes, in lower case: they carry the frame of a question, not what it is about."""

_JOIN = r"'’\-‐‑"
_WORD = re.compile(rf"[^\W_]\w*(?:(?:[{_JOIN}\u200c\u200d]|(?<=\d)[.,](?=\d))[^\W_]\w*)*")
_POSSESSIVE = re.compile(r"['’][sS]$")
_CLITICS = frozenset({"s", "t", "re", "ll", "ve", "d", "m"})


def words(text: str) -> list[Range]:
    """The character ranges of the words: letters, digits and their marks, with apostrophes and hyphens inside.

    A possessive 's is not part of its word, nor a word where white space sets it off ("father 's day").
    """
    plain = text if text.isascii() and "_" not in text else "".join(map(_plain, text))
    ranges = []
    for match in _WORD.finditer(plain):
        start, end = match.span()
        word = text[start:end]
        if word.lower() in _CLITICS and start and text[start - 1] in "'’":
            continue
        if possessive := _POSSESSIVE.search(word):
            end = start + possessive.start()
        ranges.append((start, end))
    return ranges


def content_words(text: str) -> list[Range]:
    """The words that are not function words.

    A function word written with a capital inside a sentence is part of a name ("The Who", "Will Smith") and counts as
    content, unless the text writes all its words so.
    """
    ranges = words(text)
    function = [span for span in ranges if _folded(text, span) in FUNCTION_WORDS]
    inside = [span for span in function if not _begins_sentence(text, span[0])]
    cased = any(text[start].islower() for start, _ in ranges[1:])
    names = {span for span in inside if cased and text[span[0]].isupper() and _folded(text, span) != "i"}
    frame = set(function) - names
    return [span for span in ranges if span not in frame]


def _folded(text: str, span: Range) -> str:
    return text[span[0] : span[1]].lower().replace("’", "'")


def _begins_sentence(text: str, at: int) -> bool:
    before = text[:at].rstrip(" \t\n\"“‘'(")
    return not before or before[-1] in ".!?:"


def _plain(char: str) -> str:
    """The character as the word pattern sees it: marks continue a word (for Python they do not), _ does not."""
    if char == "_":
        return " "
    return "_" if unicodedata.category(char).startswith("M") else char


# --- the entity of an answer ------------------------------------------------------------------------------------

_LEAD = re.compile(r"[\s\"“”„‘’'`*_#>\-–—•(\[{«:=]+")
_ARTICLE = re.compile(r"(?:the|an?)\s+(?=\w)", re.IGNORECASE)
_PREPOSITION = re.compile(r"(?:in|on|at|by|from|during|since|about|around|approximately|circa)\s+(?=\w)")
_IN_YEAR = re.compile(r"(?:in|on|by|since|about|around|approximately|circa)\s+(?=\d)", re.IGNORECASE)
_BE = r"(?:is|was|are|were|'s|’s|would be|will be|has been|had been)"
_CARRIER = re.compile(
    rf"""(?:the|my)?\s*(?:\w+\s+)?answer(?:\s+to\s+(?:the|this|your)\s+question)?\s*(?:\s{_BE}\b|[:=])\s*(?:that\s+)?
    |(?:a|answer)\s*:\s*
    |i\s+(?:think|believe|guess|would\s+say)(?:\s+that)?\s+
    |(?:it|this|that|he|she|they|these|those|there)\s*{_BE}\s+(?:(?:called|named|known\s+as|(?:born|located|situated|based|founded|released)
    \s+(?:in|on|at)|(?:written|directed|played|founded)\s+by)\s+)?(?=\S)""",
    re.IGNORECASE | re.VERBOSE,
)
# "The capital of France is Paris": a description in lower case, then what it describes
_DESCRIPTION = re.compile(
    r"(?:[Tt]he|[Hh]is|[Hh]er|[Ii]ts|[Tt]heir)\s+[a-z][^.!?;()]*?\s(?:is|was|are|were)\s+(?:called\s+|named\s+)?(?=\w)"
)
# "Paris is the capital of France": the entity, then what is said of it
_SAID = re.compile(
    rf"\s+{_BE}\s+(?:an?|the|in|on|at|by|one|his|her|its|their|also|not|located|situated|born|known|considered|called"
    r"|named|written|directed|released|founded|played)\b"
)
_EXPLAINED = re.compile(
    r"""\s*(?:,|\s[-–—]+)\s*(?:(?:the|an?|his|her|its|their)\s+[a-z]
    |(?:which|who|whom|whose|where|when|because|since|although|though|but|so|as|while|born|located|also)\s
    |and\s+(?:it|he|she|they)\s)
    |\s(?:which|who|whose|where|because|although|though)\s+[a-z]""",
    re.VERBOSE,
)
_BRACKET = re.compile(r"\s*[;(\[{]")
_YES_NO = re.compile(r"(?:yes|no)(?=\s*[,;:!]\s*[a-z]|\s*[,;!.]\s*(?:[A-Z]\w*\s+[a-z])|\s+[-–—])", re.IGNORECASE)
_STOP = re.compile(r"([.!?])[\"”’']?\s+(?=(\w+))")
_ABBREVIATIONS = _listed(
    """st ste mr mrs ms messrs dr prof rev fr gen col maj capt cmdr adm lt sgt cpl pvt gov sen rep hon rt pres mt ft no
    nos vs wm chas geo thos op vol pt approx""",
)
"""What stands before a name or a number, so that its period never ends a sentence."""
_ENDINGS = _listed(
    "jr sr esq phd inc ltd co corp bros dept univ ave blvd rd sq etc",
    "jan feb mar apr jun jul aug sep sept oct nov dec",
)
"""What may end a sentence too: its period does if a word follows that begins one."""
_STARTERS = _listed(
    """He She It They We You This That These Those There The His Her Its Their In On At As However Also Although But
    Both Which Who What When Where Why How Was Were Is Are Did Q Question Answer Note""",
)


def answer_entity(answer: str) -> Range | None:
    """The characters of an answer's entity, from its first to its last word; None if there is nothing to take.

    The first line without quotes, articles and carrier phrases before it ("The answer is"), cut where a sentence ends
    or an explanation begins. The last word is what matters most: there the state is read.
    """
    start, end = _first_line(answer)
    end = _cut(answer, start, end, sentence_end(answer, start, end))
    start = _skip(_LEAD, answer, start, end)
    if yes_no := _YES_NO.match(answer, start, end):
        return yes_no.span()
    for pattern in (_CARRIER, _LEAD, _CARRIER, _LEAD, _DESCRIPTION, _LEAD):
        start = _skip(pattern, answer, start, end)
    end = _cut(answer, start, end, _begin(_BRACKET, answer, start, end))
    for pattern in (_EXPLAINED, _SAID):
        at = _begin(pattern, answer, start, end)
        end = at if content_words(answer[start:at]) else end  # "those who …": the explanation is the answer
    for pattern in (_IN_YEAR, _PREPOSITION, _LEAD, _ARTICLE, _LEAD):
        start = _skip(pattern, answer, start, end)
    left = _words_in(answer, start, end)
    if left:
        return left[0][0], left[-1][1]
    signs = [i for i in range(start, end) if unicodedata.category(answer[i]).startswith("S")]  # ∞, €, an emoji
    return (signs[0], signs[-1] + 1) if signs else None


def _first_line(text: str) -> Range:
    start = len(text) - len(text.lstrip())
    line = text[start:].splitlines()[:1]
    return start, start + len(line[0] if line else "")


def _words_in(text: str, start: int, end: int) -> list[Range]:
    return [span for span in words(text[:end]) if span[0] >= start]


def _skip(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    """Past the pattern, if it stands at `start` and words come after it."""
    match = pattern.match(text, start, end)
    return match.end() if match and _words_in(text, match.end(), end) else start


def _begin(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    match = pattern.search(text, start, end)
    return match.start() if match else end


def _cut(text: str, start: int, end: int, at: int) -> int:
    """The new end, unless no word would be left."""
    return at if _words_in(text, start, at) else end


def sentence_end(text: str, start: int, end: int) -> int:
    """Where the first sentence ends; the period of an abbreviation or an initial does not end one."""
    for match in _STOP.finditer(text, start, end):
        mark, following = match.groups()
        before = re.split(r"[\s(\"“-]", text[start : match.start()])[-1].lower()
        if mark == "." and before in _ABBREVIATIONS:
            continue
        maybe = mark != "." or len(before) == 1 or "." in before or before in _ENDINGS
        if following in _STARTERS or (not maybe and following[0].isupper()):
            return match.start()
    return end
