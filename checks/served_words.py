"""Words that a real vLLM and the proxy judge: are they the library's, does anything pass, and what do they cost?

    python checks/served_words.py fitted --models DIR --texts FILE --detector words.json
    python checks/served_words.py --models DIR --texts FILE --detector words.json --vllm-python PYTHON

`--texts` is a file of texts with passages and labelled spans, such as FaithBench. The passages are put into requests,
as a client would send them. Steps: `fitted` fits the detector on some of them, in float32; `agreement` asks for
summaries of the others, streamed and not, in several settings of the server and through the proxy, and judges them
with the library; `mixed` sends requests of every kind, some of them aborted; `cost` loads servers with judged words and
without, in turns.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from anchorscope.detectors.reasons import NO_FLAG
from anchorscope.models.load import Model
from anchorscope.models.opened import open_model
from anchorscope.progress import printed
from anchorscope.words.detector import WordDetector, parse_promise
from anchorscope.words.detectors import WordData
from anchorscope.words.files import SpanLabels, read_texts
from anchorscope.words.known import with_known
from anchorscope.words.read import WordReader
from anchorscope.words.record import Judged, Message, Text
from helpers.server_requests import any_request, without_answer
from helpers.steps import Check, Figures, Options
from helpers.vllm_server import RefusedError, Reply, VllmServer, load
from live import EAGER, SETTINGS, TENTHS
from weights import TITLES, unpacked

check = Check(__doc__)
check.option("--texts", "File of texts with passages and labelled spans", None, type=Path)
check.option("--wrong", "Labels of wrong spans", "unwanted")
check.option("--leave-out", "Labels that count neither way", "questionable,benign,unlabelled")
check.option("--fit-on", "Fit on texts of so many clusters", 40)
check.option("--detector", "The fitted detector", None, type=Path)
check.option("--responses", "Ask for this many responses, streamed and not", 500)
check.option("--requests", "Send this many mixed requests", 2_000)
check.option("--rounds", "Measure the cost this often", 8)
check.option("--tokens", "Tokens of a response whose cost is measured", 64)
check.option("--settings", "Compare in these settings, such as compiled (all)", "")

MODEL = "smollm2-135m"
ASKED = "Summarize this passage in a few sentences.\n\n{}"
PROXY = "through the proxy"
AGREED = ("as it is", PROXY, "compiled", "chunked prefill of 48 tokens", "n-gram speculation")
CHAT = "/v1/chat/completions"
EACH = 5  # texts of a cluster that the detector is fitted on
NEAR = 1e-4


def texts_of(options: Options) -> list[Text]:
    """The texts, with their passages inside the request."""
    if options.texts is None or options.detector is None:
        raise SystemExit("Give a file of texts with passages, and the place of the detector: --texts, --detector")
    listed = (frozenset(filter(None, given.split(","))) for given in (options.wrong, "", options.leave_out))
    return [
        replace(text, prompt="", passage=None, messages=(Message("user", ASKED.format(text.passage)),))
        for text in read_texts(options.texts, SpanLabels(*listed), judged=True)
    ]


def requests_of(options: Options, count: int, characters: int = 600) -> list[tuple[Message, ...]]:
    """So many chats about passages on which the detector was not fitted, each beginning at another place."""
    texts = texts_of(options)
    clusters = list(dict.fromkeys(text.cluster for text in texts))[options.fit_on :]
    first = {text.cluster: text.messages[0].content for text in texts if text.cluster in clusters}
    passages = [content.partition("\n\n")[2] for content in first.values()]
    chats: list[tuple[Message, ...]] = []
    for number in range(count):
        passage, turn = passages[number % len(passages)], number // len(passages)
        words = passage.split(" ")
        start = len(words) * turn // (2 * (1 + count // len(passages)))
        chats.append((Message("user", ASKED.format(" ".join(words[start:])[:characters])),))
    return chats


def asked_of(model: Path, turns: Sequence[Message], **more: Any) -> dict[str, Any]:
    """A request for a greedy response."""
    messages = [turn._asdict() for turn in turns]
    return {"path": CHAT, "model": str(model), "messages": messages, "temperature": 0, "max_tokens": 40, **more}


@check.step("models", by_default=False)
def fitted(options: Options, work: Path) -> Figures:
    """A detector of log-probabilities, fitted on texts that other models wrote."""
    texts = texts_of(options)
    of_cluster: dict[str, list[Text]] = {}
    for text in texts:
        of_cluster.setdefault(text.cluster, []).append(text)
    texts = [text for own in list(of_cluster.values())[: options.fit_on] for text in own[:EACH]]
    model = open_model(unpacked(MODEL, options.models), name=TITLES[MODEL], dtype="float32")
    with printed("reading", len(texts)) as advance:
        readings = []
        for reading in WordReader(model, [])(texts):
            readings.append(reading)
            advance(1)
    promise = parse_promise("20% false alarms")
    made = WordDetector.fitted(WordData.of(readings, []), model, "live_numbers", promise)
    with_known(made, model, texts, printed).save(options.detector)
    return {"texts": len(texts), "detector": str(made)}


@check.step("models", "vllm_python")
def agreement(options: Options, work: Path) -> Figures:
    """Words of a server, or of the proxy, beside those of the library for the same responses, streamed and not."""
    folder = unpacked(MODEL, options.models)
    detector, model = WordDetector.load(options.detector), open_model(str(folder), dtype="float32")
    chats = requests_of(options, options.responses)
    figures: Figures = {}
    for name in options.settings.split(",") if options.settings else AGREED:
        some = chats if name == "as it is" else chats[: max(1, options.responses // 5)]
        try:
            with served(options, folder, work, name) as url:
                asked = [asked_of(folder, chat, logprobs=True) for chat in some]
                whole = asyncio.run(load(url, asked, 16))
                print(f"{name}: {len(whole)} whole responses", flush=True)
                streamed = asyncio.run(load(url, [{**data, "stream": True} for data in asked], 16))
                known = httpx.get(f"{url}/anchorscope/status", timeout=60).json()["parity"]
        except RefusedError as refused:
            figures[name] = {"refused": str(refused)[-400:]}
            print(name, figures[name], flush=True)
            continue
        figures[name] = {**compared(detector, model, some, whole, streamed), "known responses": known}
        print(name, figures[name], flush=True)
    return figures


@contextmanager
def served(options: Options, folder: Path, work: Path, name: str) -> Iterator[str]:
    """The URL of a server in some setting that judges words, or of the proxy before a plain one."""
    words, python = options.detector, options.vllm_python
    if name == PROXY:
        with (
            VllmServer(python, folder, work / "plain.log", flags=EAGER) as plain,
            VllmServer(sys.executable, folder, work / "proxy.log", endpoint=plain.url, words=words) as by,
        ):
            yield by.url
    else:
        with VllmServer(python, folder, work / "log", flags=SETTINGS[name], words=words) as by:
            yield by.url


def compared(
    detector: WordDetector,
    model: Model,
    chats: Sequence[Sequence[Message]],
    whole: Sequence[Reply],
    streamed: Sequence[Reply],
) -> Figures:
    """How far served words agree with those that the library finds in the text that was served."""
    counts: Counter[str] = Counter()
    apart: list[float] = []
    spelled: list[bool] = []
    texts = [
        [Text(str(number), said_in(reply), messages=tuple(chat)) for number, (chat, reply) in enumerate(pairs)]
        for pairs in (list(zip(chats, whole, strict=True)), list(zip(chats, streamed, strict=True)))
    ]
    for text, reply in zip(texts[0], whole, strict=True):
        served = [each["token"] for each in reply.body["choices"][0]["logprobs"]["content"]]
        plain = model.tokenizer(text.response, add_special_tokens=False)["input_ids"]
        spelled.append(
            [token for token in served if token not in model.tokenizer.all_special_tokens]
            == [model.tokenizer.decode([each]) for each in plain]
        )
    different = {(text.messages, text.response): text for each in texts for text in each}
    read = dict(zip(different, detector(model, different.values()), strict=True))
    for kind, texts_now, replies in (("whole", texts[0], whole), ("streamed", texts[1], streamed)):
        for number, (text, reply) in enumerate(zip(texts_now, replies, strict=True)):
            own, told = read[text.messages, text.response], reply.body["choices"][0]
            counts[f"{kind}: responses"] += 1
            counts[f"{kind}: the same text as whole"] += own.text.response == texts[0][number].response
            found = alike(own, told)
            if found.partition(":")[0].isupper() and not spelled[number]:
                found = "differs, because the model spelled the text with other tokens"
            counts[f"{kind}: {found}"] += 1
            if found == "alike":
                pairs = zip(own.words, told["anchorscope_words"], strict=True)
                apart += [abs(word.p_wrong - now["p_wrong"]) for word, now in pairs]
    return {**dict(sorted(counts.items())), "words": len(apart), "largest difference": max(apart, default=None)}


def alike(own: Judged, told: dict[str, Any]) -> str:
    """Whether a served response has the words, the numbers, the spans and the decision of the library."""
    verdict, words = told["anchorscope"], told.get("anchorscope_words", [])
    if verdict["reason"] not in ("", NO_FLAG):
        if own.reason:
            return f"cannot say, as in the library: {own.reason}"
        return f"ONLY THE SERVER CANNOT SAY: {verdict['reason']}"
    if own.reason:
        return f"JUDGED: {own.reason}"
    if [(word["start"], word["end"]) for word in words] != [word[:2] for word in own.words]:
        return "OTHER WORDS"
    if any(abs(word.p_wrong - now["p_wrong"]) > NEAR for word, now in zip(own.words, words, strict=True)):
        return "OTHER NUMBERS"
    near = any(abs(word.p_wrong - (own.threshold or 2)) < NEAR for word in own.words)
    if not near and [(span["start"], span["end"]) for span in verdict["spans"]] != [span[:2] for span in own.flagged()]:
        return "OTHER SPANS"
    return "alike"


def said_in(reply: Reply) -> str:
    """The response."""
    choice = reply.body["choices"][0]
    return str(choice.get("text") if "text" in choice else choice["message"]["content"])


@check.step("models", "vllm_python")
def mixed(options: Options, work: Path) -> Figures:
    """Requests of every kind, a tenth of them aborted: failures, silence, words that are not the response's."""
    folder = unpacked(MODEL, options.models)
    chats = requests_of(options, 200, characters=200)
    prompts = [f"{chat[0].content}\n\nSummary:" for chat in chats]
    draw, counts = random.Random(2), Counter[str]()
    with VllmServer(options.vllm_python, folder, work / "log", flags=EAGER, words=options.detector) as by:
        memory = [by.megabytes()]
        for _ in range(TENTHS):
            asked = [any_request(draw, folder, prompts) for _ in range(options.requests // TENTHS)]
            for data in asked:
                if data["kind"] == "chat" or (data["kind"] in ("plain", "streamed") and draw.random() < 0.5):
                    data.update(asked_of(folder, draw.choice(chats), max_tokens=12, stream=data.get("stream", False)))
                    for field in ("prompt", "stop"):
                        data.pop(field, None)
            for data, reply in zip(asked, asyncio.run(load(by.url, asked, 32)), strict=True):
                counts.update(outcomes(data, reply))
            memory.append(by.megabytes())
            print(dict(counts), [round(each) for each in memory], flush=True)
        status = httpx.get(f"{by.url}/anchorscope/status", timeout=60).json()
        failed = by.said().count("Traceback")
    return {
        "counts": dict(sorted(counts.items())),
        "memory in MB": [round(each) for each in memory],
        "errors in the log": failed,
        **{name: status[name] for name in ("verdicts", "reasons")},
    }


def outcomes(data: dict[str, Any], reply: Reply) -> list[str]:
    """What became of a request: what has to be counted. Names in capitals must not occur."""
    kind = data["kind"]
    if unanswered := without_answer(data, reply):
        return [unanswered]
    found = []
    for choice in reply.body.get("choices", ()):
        told, words = choice.get("anchorscope"), choice.get("anchorscope_words") or []
        if kind == "off":
            found.append("off" if told is None and not words else "UNASKED VERDICT")
            continue
        if told is None:
            found.append(f"SILENT: {kind}")
            continue
        text = said_in(Reply(200, 0, {"choices": [choice]}, {}))
        places = [(word["start"], word["end"]) for word in words]
        inside = all(0 <= start < end <= len(text) and not text[start:end].isspace() for start, end in places)
        if not inside or places != sorted(set(places)):
            found.append(f"WORDS OUTSIDE THE RESPONSE: {kind}")
        if told["decision"] not in ("flag", "cannot say"):
            found.append(f"A PASS: {kind}")
        elif (told["decision"] == "flag") != bool(told["spans"]):
            found.append(f"SPANS WITHOUT A FLAG: {kind}")
        elif told["decision"] == "cannot say" and not told["reason"]:
            found.append("NO REASON")
        elif told["reason"] in ("", NO_FLAG) and not words:
            found.append(f"JUDGED WITHOUT WORDS: {kind}")
        else:
            found.append(told["decision"])
        if choice.get("token_ids") or choice.get("logprobs"):
            found.append("LEFT IN")
    return found


@check.step("models", "vllm_python", by_default=False)
def cost(options: Options, work: Path) -> Figures:
    """CPU time and latency of streams with judged words, over those of the server alone, in turns."""
    folder = unpacked(MODEL, options.models)
    chats, draw = requests_of(options, 200), random.Random(3)
    figures: Figures = {}
    with VllmServer(options.vllm_python, folder, work / "plain.log", flags=EAGER) as plain:
        plain.still()
        with VllmServer(options.vllm_python, folder, work / "log", flags=EAGER, words=options.detector) as by:
            by.still()
            servers = {"without": plain, "with": by}
            for at_once in (1, 8, 32):
                rounds: dict[str, list[Round]] = {who: [] for who in servers}
                for turn in range(options.rounds + 1):  # the first warms up
                    fields = {"stream": True, "max_tokens": options.tokens, "ignore_eos": True}
                    asked = [asked_of(folder, draw.choice(chats), **fields) for _ in range(max(4, at_once))]
                    for who in draw.sample(list(servers), 2):
                        took = one_round(servers[who], asked, at_once)
                        rounds[who] += [took] if turn else []
                figures[f"{at_once} at once"] = costs(rounds)
                print(at_once, figures[f"{at_once} at once"], flush=True)
            by.again()
        plain.again()
    return figures


class Round(NamedTuple):
    """What some streams took on one server."""

    cpu: float
    front: float
    first: list[float]
    between: list[float]


def one_round(server: VllmServer, asked: Sequence[dict[str, Any]], at_once: int) -> Round:
    """Send the requests to one server while the other one stands still."""
    server.again()
    before = server.cpu(), server.cpu(front=True)
    replies = asyncio.run(load(server.url, asked, at_once))
    after = server.cpu(), server.cpu(front=True)
    server.still()
    between = [each for reply in replies for each in reply.chunks[1:]]
    return Round(after[0] - before[0], after[1] - before[1], [reply.chunks[0] for reply in replies], between)


def costs(rounds: dict[str, list[Round]]) -> Figures:
    """Ratios of CPU time with their 95 % intervals over rounds, and latencies, without and with words."""
    found: Figures = {}
    for name, what in (("cpu", "CPU time, ratio"), ("front", "CPU time of the process in front, ratio")):
        bare, own = (np.array([getattr(each, name) for each in rounds[who]]) for who in ("without", "with"))
        drawn = np.median(np.random.default_rng(0).choice(own / bare, (2000, len(own))), axis=1)
        found[what] = [round(float(each), 3) for each in (np.median(own / bare), *np.quantile(drawn, (0.025, 0.975)))]
        found[f"{what.removesuffix(', ratio')}, s a round"] = [round(float(np.median(each)), 2) for each in (bare, own)]
    for name, what in (("first", "first token"), ("between", "between tokens")):
        for share in (50, 99):
            found[f"{what}, p{share}, in ms"] = [
                round(1000 * float(np.percentile([t for each in rounds[who] for t in getattr(each, name)], share)), 1)
                for who in ("without", "with")
            ]
    return found


@check.judge
def judge(figures: Figures) -> None:
    """Stop when words differ from the library's, or a request was silent: outcomes that are named in capitals."""
    rows = {**figures.get("agreement", {}), "mixed": figures.get("mixed", {}).get("counts", {})}
    for name, counts in rows.items():
        if isinstance(counts, dict):
            bad = {what for what in counts if any(part.strip().isupper() for part in what.split(":"))}
            assert not bad, f"{name}: {bad}"


if __name__ == "__main__":
    check()
