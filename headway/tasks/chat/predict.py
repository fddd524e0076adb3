"""Predicting with a chat model: as a language model does, evaluated on conversations."""

from __future__ import annotations

from headway.tasks.chat.task import Chat
from headway.tasks.lm.predict import LanguageModelPredictor


class ChatPredictor(LanguageModelPredictor):
    """A chat model in use."""

    task = Chat()
