"""What /openapi.json says of the API is true, for requests made by its rules and against them."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from tests.serve.conftest import KEY, Running

WRITING = ["/v1/chat/completions", "/v1/completions"]
POST = [*WRITING, "/v1/embeddings", "/v1/run"]
GET = ["/v1/models", "/v1/models/{model}", "/health", "/metrics"]
BOTH = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
OPERATIONS = [(path, "POST", mode) for path in POST for mode in BOTH] + [(path, "GET", BOTH[0]) for path in GET]
LEFT_OUT = ("positive_data_acceptance", "ignored_auth")
"""A request may fit the description and not the model: too long, or for something that it cannot do. That the key is
needed is tested elsewhere: this check sends it along by mistake."""


@pytest.fixture(scope="module")
def description(reciter: Running) -> Any:
    return schemathesis.openapi.from_dict(reciter.get("/openapi.json").json())


def check(server: Running, operation: Any, mode: GenerationMode, examples: int) -> set[int]:
    """Statuses of the answers to so many requests, each of them as the description has it."""
    found: set[int] = set()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(mode))
    def ask(case: Any) -> None:
        for name in ("max_tokens", "max_completion_tokens") if isinstance(case.body, dict) else ():
            if isinstance(case.body.get(name, 4), int):
                case.body[name] = min(case.body.get(name, 4), 4)  # for the sake of time
        answer = case.call_and_validate(
            base_url=server.url,
            headers={"authorization": f"Bearer {KEY}"},
            excluded_checks=CHECKS.get_by_names(LEFT_OUT),
        )
        found.add(answer.status_code)

    ask()
    return found


def test_every_route_is_described(reciter: Running) -> None:
    paths = reciter.get("/openapi.json").json()["paths"]
    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == {
        *((path, "POST") for path in POST),
        *((path, "GET") for path in GET),
    }


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_some_requests(reciter: Running, description: Any, path: str, method: str, mode: GenerationMode) -> None:
    found = check(reciter, description[path][method], mode, 8)
    assert found & ({400, 404, 405, 415} if mode == GenerationMode.NEGATIVE else {200, 400, 404})
    assert reciter.idle()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_many_requests(reciter: Running, description: Any, path: str, method: str, mode: GenerationMode) -> None:
    check(reciter, description[path][method], mode, 500)
    assert reciter.idle()
