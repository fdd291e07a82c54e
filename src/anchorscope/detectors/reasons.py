"""The reasons for *cannot say*, as texts for the client and as a closed set of codes for counts and logs.

A code is the same for all answers with one reason, and holds nothing that a client wrote.
"""

from __future__ import annotations

OTHER_DECODING = "it was not decoded like the answers of the fit"
OTHER_PROMPT = "its prompt is not the detector's prompt"
NOT_READ = "its last token was not read: it was cut off at max_tokens or at a stop string"
OTHER_TEXT = "its tokens are not the text that the client sees"
NO_ROWS = "its states did not arrive"
NO_LOGPROBS = "the endpoint returned no log-probabilities"
BAD_LOGPROBS = "its log-probabilities are not one finite number of at most 0 for each token"
NO_PROMPT_IDS = "the tokens of its prompt are not known"
OTHER_MODEL = "it was answered by another model than the detector's"
UNREADABLE = "a part of the response could not be read"
NO_INDEX = "its index is missing, repeated or not a whole number"
OTHER_COUNT = "the response does not have as many answers as were asked for"
NO_END = "the response ended before the answer did"
TEXT_AFTER = "more of the answer came after its verdict"
NOT_TEXT = "the answer has parts that are not text"
TOOL_CALL = "the answer is a tool call"
REASONED = "the model reasoned before it answered"
VERY_LONG = "it is too long"
LONG_PROMPT = "its prompt is too long"
CANNOT_BE_JUDGED = "cannot be judged"
SUSPENDED = "the endpoint does not agree with the detector on known answers"
FAILED = "the detector failed"
NO_FLAG = "no word is flagged, and nothing is promised of such responses"
NO_THRESHOLD = "no threshold keeps the promise"
NO_WORDS = "the response has no words"

CODES = {
    OTHER_DECODING: "other_decoding",
    OTHER_PROMPT: "other_prompt",
    NOT_READ: "cut_off",
    OTHER_TEXT: "other_text",
    NO_ROWS: "no_states",
    NO_LOGPROBS: "no_logprobs",
    BAD_LOGPROBS: "bad_logprobs",
    NO_PROMPT_IDS: "no_prompt_ids",
    OTHER_MODEL: "other_model",
    UNREADABLE: "unreadable",
    NO_INDEX: "no_index",
    OTHER_COUNT: "other_count",
    NO_END: "no_end",
    TEXT_AFTER: "text_after_verdict",
    NOT_TEXT: "not_text",
    TOOL_CALL: "tool_call",
    REASONED: "reasoned",
    VERY_LONG: "too_long",
    LONG_PROMPT: "prompt_too_long",
    CANNOT_BE_JUDGED: "kind_of_request",
    SUSPENDED: "suspended",
    FAILED: "failed",
    # of detectors: detectors/reader.py, detectors/drift.py, detectors/detector.py
    "the answer has several lines": "several_lines",
    "its states are unlike": "unlike_training",
    "its log-probabilities or length are unlike": "unlike_training",
    "it is an abstention": "abstention",
    "a passage came with its question": "passage",
    "the question and the answer are too long": "too_long_for_model",
    "its score is not a number": "no_score",
    NO_FLAG: "no_flag",
    NO_THRESHOLD: "no_threshold",
    NO_WORDS: "no_words",
    "its words are unlike": "unlike_training",
    "the detector was fitted on responses with": "passage",
    "no exact answer": "no_exact_answer",
}
"""The code of a reason, by the text with which the reason begins."""


def code_of(reason: str) -> str:
    """The code of a reason; empty where there is none, `other` where it is not in the list."""
    if not reason:
        return ""
    return next((code for begin, code in CODES.items() if reason.startswith(begin)), "other")
