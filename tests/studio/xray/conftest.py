"""Small models under inspection: two decoders, an encoder with labels, an encoder–decoder."""

from __future__ import annotations

import pytest

from headway.inspect.session import Session
from headway.inspect.trace import Pass
from tests.inspect.conftest import config_of, made

TEXT = "the cat sat"


@pytest.fixture(params=["gpt2", "llama", "classifier", "t5"])
def seen(request: pytest.FixtureRequest) -> tuple[Session, Pass]:
    """A session, and a pass of a text."""
    session = Session(made(config_of(request.param), request.param))
    return session, session.run(TEXT, target="a dog" if request.param == "t5" else None)


@pytest.fixture
def decoder() -> tuple[Session, Pass]:
    session = Session(made(config_of("gpt2"), "gpt2"))
    return session, session.run(TEXT)
