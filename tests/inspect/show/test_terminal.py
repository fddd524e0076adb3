"""An inspection as text: what is drawn is what was found, and no token reaches the terminal that it would act on."""

from __future__ import annotations

import numpy as np
import pytest

from headway.api import Bundle
from headway.inspect.changes import Ablate, Scale
from headway.inspect.show.terminal import WIDTH, attribution_lines, patching_lines, picture, shade, shown


def test_every_model_has_a_picture(any_bundle: Bundle) -> None:
    lines = list(picture(any_bundle.inspect("To be or not [MASK]")))
    kinds = any_bundle.inspect("To be or not").kinds
    for kind in kinds:
        assert f"{kind} attention: what each head looks at" in lines
    assert all(len(line) <= WIDTH + 20 for line in lines)
    assert any(line.startswith("logit lens") for line in lines)


def test_a_head_is_drawn_when_it_is_asked_for(bundle: Bundle) -> None:
    seen = bundle.inspect("To be")
    lines = list(picture(seen, layer=1, head=3))
    at = next(i for i, line in enumerate(lines) if line.startswith("decoder layer 1 head 3"))
    weights = seen.attention("decoder", 1, 3)
    assert lines[at + 1].split() == ["T", "o", "␣", "b", "e"]
    row = lines[at + 2 + 4]
    assert row[5:15] == "".join(2 * shade(float(w)) for w in weights[4])
    assert row.endswith(f"{weights[4].max():.0%}")


def test_changes_show_the_answers_before_and_after(bundle: Bundle) -> None:
    plain = bundle.inspect("To be")
    same = bundle.inspect("To be", changes=[Scale(layer=0, head=0, factor=1.0)])
    lines = list(picture(same, plain))
    at = lines.index("with 1 change: each answer before, and after")
    assert "→" in lines[at + 1]
    before, after = (part.split()[-1] for part in lines[at + 1].split("→")[0:1] * 2)
    assert before == after
    other = list(picture(bundle.inspect("To be", changes=[Ablate(layer=0), Ablate(layer=1)]), plain))
    assert other[other.index("with 2 changes: each answer before, and after") + 1] != lines[at + 1]


@pytest.mark.parametrize("text", ["\x1b[31m", "a\nb", "\u202e", "\x9b2J", "\t"])
def test_nothing_reaches_the_terminal_that_it_would_act_on(text: str) -> None:
    assert all(character.isprintable() for character in shown(text))
    assert shown("") == "∅"


def test_shades_rise_with_the_weight() -> None:
    blocks = [shade(value) for value in np.linspace(0, 1, 20)]
    order = [" ░▒▓█".index(block) for block in blocks]
    assert order == sorted(order) and {0, 4} <= set(order)
    assert shade(-1) == " " and shade(2) == "█"


def test_long_inputs_are_drawn_in_part(bundle: Bundle) -> None:
    lines = list(picture(bundle.inspect("x" * 60)))
    assert "  the last 32 of 60 positions; --html and --json have all" in lines
    assert sum(line.startswith("  x ") for line in lines) == 32


def test_attribution_and_patching_as_text(classifier: Bundle, bundle: Bundle) -> None:
    found = classifier.session.attribution("To be")
    lines = list(attribution_lines(found))
    assert lines[0].startswith(f"integrated: what speaks for {found.answer} ")
    assert [float(line.split()[1]) for line in lines[1:6]] == [round(float(v), 3) for v in found.values]
    told = "\n".join(patching_lines(bundle.session.patching("To be", "To me")))
    assert "b→m" in told and "1.00" in told
