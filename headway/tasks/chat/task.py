"""Dialogue: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.datasets.chat import are_conversations, read_conversations
from headway.data.files.columns import MESSAGES, column_names, named
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.base import FineTuning, Suitability, Tries
from headway.tasks.lm.task import LanguageModeling

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


class Chat(LanguageModeling):
    """Conversations: the loss is on the assistant's turns only."""

    name, title, noun = "chat", "dialogue", "chat model"
    tries = Tries("--chat", "--chat")
    made_up = "made-up conversations"
    networks, carries, evaluates, minutes = False, False, True, 10.0
    fine_tuning = FineTuning(epochs=(1, 4), longest=1024, keep_best=True)
    training = "headway.tasks.chat.training:ChatTraining"
    predictor = "headway.tasks.chat.predict:ChatPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        values = [row.values for row in rows]
        return Suitability(0.85 * bool(named(values, MESSAGES) or {"instruction", "output"} <= {*column_names(values)}))

    def reads(self, rows: Sequence[Row]) -> bool:
        return are_conversations(rows)

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        for conversation in read_conversations(data.train, bad, data):
            yield ("\n".join(message["content"] for message in conversation.messages),)

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        read_conversations(source, bad, data)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return False  # by its heads a chat model is a language model
