"""The recipes as their head comments describe them."""

from __future__ import annotations

import shlex

from headway.reference.recipes import head_comment, recipe, recipes
from headway.tasks.recipe import RECIPES, recipe_names

HEAD = """# A title.
#
#   headway train x a=1 \\
#       b=2
#   headway run last
#
# data:   rows, in
#         two lines
# score:  0.9; 6 s on an H200

task = "lm"
# score: no part of the head
"""


def test_a_head_comment_is_read() -> None:
    title, commands, facts = head_comment(HEAD)
    assert title == "A title."
    assert commands == ("headway train x a=1 b=2", "headway run last")
    assert facts == {"data": "rows, in two lines", "score": "0.9; 6 s on an H200"}
    assert head_comment("task = 'lm'") == ("", (), {})


def test_every_recipe_is_described() -> None:
    found = recipes()
    assert [each.name for each in found] == recipe_names()
    for each in found:
        assert each.title and each.task and all(shlex.split(line)[0] == "headway" for line in each.commands)
        if (RECIPES / f"{each.name}.toml").exists():
            assert {"data", "model"} <= each.facts.keys()


def test_the_time_of_a_recipe() -> None:
    assert recipe("tiny").time == "95 s on two cores of a small CPU"
    assert recipe("sst2").time == "6 s on an H200"  # told by its score
    assert recipe("ptb").time == "71 s on one H200"
    assert recipe("summarize").time == "60 s for 300 steps on two cores of a CPU"  # not that of one step
    assert recipe("lm").time == "as long as train.minutes says"
    assert recipe("tiny").to_dict()["values"]["train"]["batch"] == 12


def test_a_starter_is_told_apart() -> None:
    assert recipe("classify").starter and not recipe("sst2").starter
    assert "starter" not in recipe("classify").values
