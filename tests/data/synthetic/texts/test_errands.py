"""Made-up stories: their answers follow from what is told, and from the sentences that are named as support."""

from __future__ import annotations

from collections import Counter

from headway.data.datasets.stories import Story, words_of
from headway.data.synthetic.texts.errands import KINDS, NUMBERS, make_errands


def answer(story: Story) -> str:
    """By reading the sentences in order."""
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    for words in map(words_of, story.told):
        person, verb, thing = words[0], words[1], words[-1]
        if "to" in words:
            at[person] = thing
        elif verb in ("took", "picked"):
            held[thing] = person
        else:
            assert held.pop(thing) == person
    asked = words_of(story.question)
    if story.kind == "how many":
        return NUMBERS[Counter(held.values())[asked[4]]]
    if story.kind == "yes or no":
        return "yes" if at[asked[1]] == asked[-1] else "no"
    return at[held.get(asked[-1], asked[-1])]


def test_answers_follow_from_the_story() -> None:
    stories = make_errands(400, seed=3)
    assert [story.label for story in stories] == [answer(story) for story in stories]
    assert Counter(story.kind for story in stories) == dict.fromkeys(KINDS, 100)
    assert all(0 <= place < len(story.told) for story in stories for place in story.support)


def test_a_thing_is_told_by_who_carries_it_and_where_they_are() -> None:
    story = next(story for story in make_errands(50) if story.kind == "where is a thing")
    taken, went = (story.told[place] for place in story.support)
    assert words_of(story.question)[-1] in words_of(taken) and story.label in words_of(went)


def test_equal_seeds_give_equal_stories() -> None:
    assert make_errands(20, seed=5) == make_errands(20, seed=5) != make_errands(20, seed=6)
