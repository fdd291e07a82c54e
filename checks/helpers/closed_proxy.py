"""A proxy process with a made-up detector of log-probabilities: python checks/helpers/closed_proxy.py ENDPOINT PORT."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.misbehaving import QUESTIONS, logprobs_of
from helpers.steps import use_tests


def made_up_judge() -> Any:
    """A detector whose known answers are those of the endpoint, with its tokenizer."""
    use_tests()
    from anchorscope.detectors.detector import KnownAnswer
    from anchorscope.models.prompts import answer_ids
    from anchorscope.serve.judge import LiveJudge
    from serving import NUMBERS, detector_of  # type: ignore[import-not-found]
    from tiny import tiny_tokenizer  # type: ignore[import-not-found]

    judge = LiveJudge("it", detector_of([], NUMBERS), tiny_tokenizer())
    ids = answer_ids(judge.prompter, judge.prompter(QUESTIONS[0]), "Danube")
    known = [KnownAnswer(question, list(ids), score_of(judge, logprobs_of(question))) for question in QUESTIONS]
    return replace(judge, detector=replace(judge.detector, known_answers=known))


def score_of(judge: Any, logprobs: list[float]) -> float:
    """The detector's score of an answer with these log-probabilities, written out."""
    from anchorscope.detectors.inputs import confidence

    numbers, fitted = confidence([logprobs]), judge.detector.fitted
    return -float(fitted.bias + sum(weight * numbers[name][0] for name, weight in fitted.numbers.items()))


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint", type=int)
    parser.add_argument("port", type=int)
    parser.add_argument("--audit", type=Path)
    parser.add_argument("--body", type=int, default=16)
    options = parser.parse_args()

    from anchorscope.serve.audit import AuditLog
    from anchorscope.serve.counts import Counts
    from anchorscope.serve.intercept import Admission
    from anchorscope.serve.proxy import Proxy, TextDesk, serve_proxy

    audit = AuditLog(options.audit) if options.audit else None
    desk = TextDesk(made_up_judge(), Counts(audit))
    admission = Admission(body_bytes=options.body << 20, at_once=512)
    serve_proxy(Proxy(f"http://127.0.0.1:{options.endpoint}/v1", desk, admission=admission), "127.0.0.1", options.port)


if __name__ == "__main__":
    main()
