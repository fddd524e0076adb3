"""What X-ray keeps between requests: a session for each model, and the last passes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from headway.errors import NotFoundError
from headway.inspect.session import Session
from headway.inspect.trace import Pass
from headway.studio.context import Models

KEPT = 8
"""Passes kept at a time: two inputs, each with some changes, in a page or two."""


class Passes:
    """Passes by their ids. A pass is used under the lock of its model, as the model is."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, Session, Pass]] = OrderedDict()

    @contextmanager
    def session(self, name: str) -> Iterator[Session]:
        """A model by name, for as long as the context lasts."""
        bundle, lock = self.models.get(name)
        with lock:
            yield Session(bundle)

    def keep(self, name: str, session: Session, seen: Pass) -> str:
        """Keep a pass of a model. Returns its id."""
        key = uuid4().hex
        with self._lock:
            self._kept[key] = name, session, seen
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return key

    @contextmanager
    def use(self, key: str) -> Iterator[tuple[Session, Pass]]:
        """A pass that was kept, and the session that made it."""
        with self._lock:
            if key not in self._kept:
                raise NotFoundError("F001", "the studio no longer keeps this pass", "run the input again")
            self._kept.move_to_end(key)
            name, session, seen = self._kept[key]
        _, lock = self.models.get(name)
        with lock:
            yield session, seen
