"""Responses that the server remembers, in memory: the newest ones, within limits."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.serve.errors import ApiError
from headway.serve.limits import Limits

Json = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    response: Json
    messages: Sequence[Json]
    """The conversation up to and with the response, without instructions."""
    size: int


class ResponseStore:
    """Only the event loop uses it. Ids cannot be guessed, so who knows an id may read the response."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.size = limits, 0
        self.stored: OrderedDict[str, Stored] = OrderedDict()

    def put(self, response: Json, messages: Sequence[Json]) -> None:
        """Remember a response, and forget the oldest ones where there are too many."""
        size = len(json.dumps([response, messages], ensure_ascii=False).encode())
        self.stored[response["id"]] = Stored(response, messages, size)
        self.size += size
        while len(self.stored) > self.limits.responses or self.size > self.limits.responses_bytes:
            self.size -= self.stored.popitem(last=False)[1].size

    def get(self, response_id: str) -> Stored:
        if (found := self.stored.get(response_id)) is None:
            message = (
                f"there is no response {response_id[:60]!r}; the server remembers the last {self.limits.responses}"
            )
            raise ApiError(404, message, "response_not_found")
        return found

    def previous(self, response_id: str | None) -> Sequence[Json]:
        """The conversation that a request goes on with."""
        if response_id is None:
            return ()
        try:
            return self.get(response_id).messages
        except ApiError as error:
            raise ApiError(400, error.message, "previous_response_not_found", "previous_response_id") from None

    def delete(self, response_id: str) -> None:
        self.size -= self.get(response_id).size
        del self.stored[response_id]
