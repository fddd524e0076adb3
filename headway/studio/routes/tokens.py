"""Routes of the page of tokens: texts through tokenizers, merges, vocabularies, tokenizers trained on a text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from headway.studio.context import Studio
from headway.studio.tokenizers import Tokenizers

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(max_length=50_000)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Splitting(Body):
    tokenizer: Name
    text: Text


class Counting(Body):
    tokenizer: Name
    texts: Annotated[list[Text], Field(max_length=50)]


class Search(Body):
    tokenizer: Name
    query: Annotated[str, Field(max_length=200)]


class Training(Body):
    kind: Literal["bpe", "wordpiece", "unigram", "words", "chars", "bytes"]
    text: Annotated[str, Field(max_length=500_000)]
    size: Annotated[int, Field(ge=0, le=50_000)] = 0
    lower: bool = False


def router(studio: Studio) -> APIRouter:
    made, tokenizers = APIRouter(prefix="/api/tokens"), Tokenizers(studio.runs)

    @made.post("/split")
    def split(body: Splitting) -> dict[str, Any]:
        return tokenizers.get(body.tokenizer).split(body.text)

    @made.post("/count")
    def count(body: Counting) -> dict[str, Any]:
        """How many tokens each text has."""
        known = tokenizers.get(body.tokenizer)
        return {**known.to_dict(), "counts": [known.count(text) for text in body.texts]}

    @made.post("/merges")
    def merges(body: Splitting) -> dict[str, Any]:
        return tokenizers.get(body.tokenizer).merges(body.text)

    @made.post("/vocabulary")
    def vocabulary(body: Search) -> dict[str, Any]:
        return tokenizers.get(body.tokenizer).search(body.query)

    @made.post("/train")
    def train(body: Training) -> dict[str, Any]:
        return tokenizers.train(body.kind, body.text, body.size, lower=body.lower).to_dict()

    return made
