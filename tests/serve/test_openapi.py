"""/openapi.json describes the API correctly, for requests that follow it and for requests that do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from headway.api import Bundle
from headway.serve.errors import ApiError
from headway.serve.schemas import UNSUPPORTED, CompletionRequest, validate
from tests.serve.conftest import KEY, Running, running

WRITING = ["/v1/chat/completions", "/v1/completions", "/v1/responses"]
POST = [*WRITING, "/v1/embeddings", "/v1/run"]
GET = ["/v1/responses/{response_id}", "/v1/models", "/v1/models/{model}", "/health", "/metrics"]
BOTH = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
OPERATIONS = [(path, "POST", mode) for path in POST for mode in BOTH] + [(path, "GET", BOTH[0]) for path in GET]
OPERATIONS.append(("/v1/responses/{response_id}", "DELETE", BOTH[0]))
LEFT_OUT = ("positive_data_acceptance", "ignored_auth")
"""A request may fit the description and not the model: it may be too long, or for a task that the model cannot do.
Other tests cover the key: this check sends it along by mistake."""


@pytest.fixture(scope="module")
def description(reciter: Running) -> Any:
    return schemathesis.openapi.from_dict(reciter.get("/openapi.json").json())


@pytest.fixture(scope="module")
def labels(encoder: Bundle) -> Iterator[Running]:
    with running(encoder, KEY) as made:
        yield made


def check(server: Running, operation: Any, mode: GenerationMode, examples: int, **more: Any) -> set[int]:
    """Send generated requests, validate the responses, and return their statuses."""
    found: set[int] = set()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None, **more)
    @given(case=operation.as_strategy(mode))
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and operation.path in WRITING:  # to save time
            case.body.setdefault("max_output_tokens" if operation.path == WRITING[2] else "max_tokens", 4)
            for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
                value = case.body.get(name)
                if isinstance(value, int) and 4 < value < 2**31:  # what is wrong stays wrong
                    case.body[name] = 4
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
    for path in POST:
        body = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["additionalProperties"] is False and "user" in body["properties"]
    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == {
        *((path, "POST") for path in POST),
        *((path, "GET") for path in GET),
        ("/v1/responses/{response_id}", "DELETE"),
        ("/v1/audio/transcriptions", "POST"),
    }


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}, 1, 1.0, True, 2, "a", [0], {"a": None}])
def test_fields_that_are_not_supported(reciter: Running, value: Any) -> None:
    """They are allowed with empty values, and the description says so."""
    description = reciter.get("/openapi.json").json()
    body = description["paths"][WRITING[1]]["post"]["requestBody"]["content"]["application/json"]["schema"]
    valid = jsonschema_rs.validator_for(body | {"components": description["components"]})
    for name in UNSUPPORTED:
        asked = {"model": "reciter", name: value}
        try:
            validate(CompletionRequest, asked)
        except ApiError as problem:
            assert (problem.code, problem.param) == ("unsupported", name) and not valid.is_valid(asked)
        else:
            assert valid.is_valid(asked) and (not value or name == "best_of")


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_some_requests(reciter: Running, description: Any, path: str, method: str, mode: GenerationMode) -> None:
    found = check(reciter, description[path][method], mode, 8, derandomize=True)
    assert found & ({400, 404, 405, 415} if mode == GenerationMode.NEGATIVE else {200, 400, 404})
    assert 200 in found or path not in ("/v1/models", "/health", "/metrics") or mode == GenerationMode.NEGATIVE
    assert reciter.idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "more"), [(WRITING[0], {"messages": [{"role": "user", "content": "a"}]}), (WRITING[1], {})]
)
def test_a_response_is_as_described(
    reciter: Running, description: Any, path: str, more: dict[str, Any], stream: bool
) -> None:
    body = {"model": "reciter", "max_tokens": 3, "stream": stream, "logprobs": True if more else 2, "user": "me"}
    case = description[path]["POST"].Case(body=body | more, media_type="application/json")
    answer = case.call(base_url=reciter.url, headers={"authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"][0].startswith("text/event-stream" if stream else "application/json")
    case.validate_response(answer, excluded_checks=CHECKS.get_by_names(LEFT_OUT))


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/run"])
def test_some_requests_to_an_encoder(labels: Running, path: str, mode: GenerationMode) -> None:
    description = schemathesis.openapi.from_dict(labels.get("/openapi.json").json())
    found = check(labels, description[path]["POST"], mode, 20, derandomize=True)
    assert found & ({400, 404, 405, 415} if mode == GenerationMode.NEGATIVE else {200})
    assert labels.idle()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_many_requests(reciter: Running, description: Any, path: str, method: str, mode: GenerationMode) -> None:
    check(reciter, description[path][method], mode, 500)
    assert reciter.idle()
