"""The glossary is in order and links to pages, and has the words that the code uses."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import get_args

import pytest

from anchorscope.evidence.experiments import experiments
from anchorscope.study.terms import CONDITIONS, NULLS, Further

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^- \*\*([^*]+?)\.?\*\*(.*)$", PAGE, re.MULTILINE))
LINKED = {link: (DOCS / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([\w/-]+\.md)\)", PAGE)}
EVERYTHING = "\n".join([PAGE, *LINKED.values()])


def key(term: str) -> str:
    """Terms are in the order of their letters, with Δ as D."""
    return re.sub(r"[^a-z]", "", unicodedata.normalize("NFKD", term.replace("Δ", "Delta").lower()))


def test_terms_are_in_alphabetical_order_under_their_letters():
    assert len(ENTRIES) > 60
    terms = list(map(key, ENTRIES))
    assert terms == sorted(terms)
    for letter, part in re.findall(r"^## (\w)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        for term in re.findall(r"^- \*\*([^*]+)\*\*", part, re.MULTILINE):
            assert key(term).startswith(letter.lower()), term


def test_every_term_has_at_most_three_sentences_and_a_page_that_says_more():
    for term, text in ENTRIES.items():
        assert re.search(r"\]\([\w/-]+\.md\)", text), term
        said = re.sub(r"\[[^\]]*\]\([^)]*\)", "", text)
        assert len(re.findall(r"[a-z`)0-9]\.(?=\s|$)", said)) <= 3, term


@pytest.mark.parametrize("condition", [*CONDITIONS, *get_args(Further), *NULLS])
def test_every_condition_is_explained_here_or_where_a_term_links_to(condition: str):
    said = "`patched_1` to `patched_4`" if condition in ("patched_2", "patched_3") else f"`{condition}`"
    assert said in EVERYTHING


@pytest.mark.parametrize("experiment", experiments(), ids=lambda experiment: experiment.name)
def test_every_family_of_claims_has_a_term_and_every_claim_a_page(experiment):
    term = experiment.name.replace("_", " ").removesuffix("s")
    assert any(term in entry.lower() for entry in ENTRIES), experiment.name
    for claim in experiment.claims:
        assert f"`{claim.name}`" in EVERYTHING, claim.name
