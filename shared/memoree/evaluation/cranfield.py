"""The Cranfield collection through `search`: 1 400 abstracts of aerodynamics, 225 questions, judged by people.

Its three files are read as they are distributed: `cran.all.1400.xml`, `cran.qry.xml` and `cranqrel.trec.txt`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection as Members
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from blake3 import blake3

from memoree import limits
from memoree.client.request import Endpoint
from memoree.envelope import AmbientContext
from memoree.errors import invalid
from memoree.evaluation.asking import Asker
from memoree.evaluation.bounds import Bound, Held

DOCUMENTS_NAME = "cran.all.1400.xml"
QUESTIONS_NAME = "cran.qry.xml"
JUDGEMENTS_NAME = "cranqrel.trec.txt"
DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
CONTEXT = AmbientContext(workspace_id="wsp_cranfield", project_id="prj_cranfield")
GAINS_MAX = 10
KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Document:
    number: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Question:
    """`relevant` are the numbers of the documents that were judged to be of any use."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Collection:
    documents: Sequence[Document]
    questions: Sequence[Question]
    """Those with at least one relevant document."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the questions. Gains are binary; ranks count to 100."""

    documents: int
    questions: int
    ndcg_at_10: float
    recall_at_100: float
    mrr: float


NDCG_BOUND = Bound("Cranfield nDCG@10", must=0.385, aim=0.405, at_least=True)


def held(figures: Figures) -> list[Held]:
    return [Held(NDCG_BOUND, figures.ndcg_at_10)]


def read_collection(directory: Path) -> Collection:
    """Raises `INVALID_REQUEST` for files that are missing or hold something else."""
    try:
        documents = [_document(item) for item in _elements(directory / DOCUMENTS_NAME, "doc")]
        texts = [_text(item, "title") for item in _elements(directory / QUESTIONS_NAME, "top")]
        relevant = _relevant((directory / JUDGEMENTS_NAME).read_text(encoding="utf-8"))
    except OSError as error:
        invalid(f"{error.filename} cannot be read: {error.strerror}")
    except (ElementTree.ParseError, ValueError) as error:
        invalid(f"{directory} does not hold the Cranfield collection: {error}")
    numbered = enumerate(texts, start=1)  # the judgements count the questions; the numbers they carry are others
    questions = [Question(text, relevant[position]) for position, text in numbered if relevant.get(position)]
    if not documents or not questions:
        invalid(f"{directory} holds no documents, or no question with a relevant one")
    return Collection(documents, questions)


def run_cranfield(endpoint: Endpoint, collection: Collection) -> Figures:
    """Store the documents, ask all questions. Raises what a request is refused with."""
    asker = Asker(endpoint)
    numbers = _stored(asker, collection.documents)
    rankings = [_ranking(asker, question, numbers) for question in collection.questions]
    judged = [(ranking, question.relevant) for ranking, question in zip(rankings, collection.questions, strict=True)]
    return Figures(
        documents=len(collection.documents),
        questions=len(collection.questions),
        ndcg_at_10=_mean([ndcg(ranking, relevant) for ranking, relevant in judged]),
        recall_at_100=_mean([recall(ranking, relevant) for ranking, relevant in judged]),
        mrr=_mean([reciprocal_rank(ranking, relevant) for ranking, relevant in judged]),
    )


# --- measures ---------------------------------------------------------------------------------------------------


def ndcg(ranking: Sequence[str], relevant: Members[str]) -> float:
    """Of the first ten, with a gain of 1 for every relevant document."""
    gained = sum(_discount(rank) for rank, number in enumerate(ranking[:GAINS_MAX], start=1) if number in relevant)
    return gained / sum(_discount(rank) for rank in range(1, min(GAINS_MAX, len(relevant)) + 1))


def recall(ranking: Sequence[str], relevant: Members[str]) -> float:
    return len({*ranking} & {*relevant}) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], relevant: Members[str]) -> float:
    """Of the first relevant document; 0 without one."""
    return next((1 / rank for rank, number in enumerate(ranking, start=1) if number in relevant), 0.0)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- requests ---------------------------------------------------------------------------------------------------


def _stored(asker: Asker, documents: Sequence[Document]) -> dict[str, str]:
    """One artifact per document; the numbers of the documents by artifact id."""
    numbers = {}
    for document in documents:
        input = {
            "kind": "abstract",
            "title": document.title or f"document {document.number}",
            "media_type": "text/plain; charset=utf-8",
            "content": {"type": "text", "data": document.body},
            "provenance": {"document": document.number},
        }
        digest = blake3(f"{document.title}\0{document.body}".encode()).hexdigest()[:KEY_DIGITS]
        made = asker.result("artifact.put", input, CONTEXT, key=f"cranfield:{document.number}:{digest}")
        numbers[made["artifact_id"]] = document.number
    return numbers


def _ranking(asker: Asker, question: Question, numbers: dict[str, str]) -> list[str]:
    found = asker.result("search", {"query": question.text, "limit": limits.SEARCH_ITEMS_MAX}, CONTEXT)
    return [numbers[hit["entity_id"]] for hit in found["hits"] if hit["entity_id"] in numbers]


# --- files ------------------------------------------------------------------------------------------------------


def _elements(path: Path, tag: str) -> Iterator[ElementTree.Element]:
    """The documents stand in their file one after another, without a root around them."""
    text = DECLARATION.sub("", path.read_text(encoding="utf-8"))
    return ElementTree.fromstring(f"<file>{text}</file>").iter(tag)  # noqa: S314 - a file that the user names


def _document(item: ElementTree.Element) -> Document:
    return Document(_text(item, "docno"), _text(item, "title"), (item.findtext("text") or "").strip())


def _text(item: ElementTree.Element, tag: str) -> str:
    """On one line."""
    return " ".join((item.findtext(tag) or "").split())


def _relevant(text: str) -> dict[int, frozenset[str]]:
    """The numbers of the relevant documents by question. Raises `ValueError` for lines of another form."""
    found: dict[int, set[str]] = {}
    for line in text.splitlines():
        question, _, document, grade = line.split()
        if int(grade) > 0:
            found.setdefault(int(question), set()).add(document)
    return {question: frozenset(documents) for question, documents in found.items()}
