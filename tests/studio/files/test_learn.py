"""The tour in a browser: it trains its model, and every lesson draws its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.api.verbs import train
from headway.studio.learn.tour import RECIPE, make_stories
from tests.studio.conftest import RunningStudio, run_studio

LESSONS = 15


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the tour, of a few steps only."""
    place = tmp_path_factory.mktemp("tour")
    text, recipe = (place / "state" / "tour" / name for name in ("stories.txt", "tour.toml"))
    text.parent.mkdir(parents=True)
    text.write_text("\n".join(make_stories(200)) + "\n", encoding="utf-8")
    recipe.write_text(RECIPE.format(path=text.as_posix(), steps=6), encoding="utf-8")
    train(str(recipe), out=str(place / "runs"), quiet=True)
    return place


@pytest.fixture
def tour(trained: Path) -> Any:
    yield from run_studio(trained / "runs", trained / "state")


def test_every_lesson_draws_its_picture(tour: RunningStudio, page: Any) -> None:
    page.goto(tour.address)
    page.goto(tour.url + "/learn")
    page.wait_for_selector("text=Trained: tour-0001")
    titles = []
    for number in range(2, LESSONS + 1):
        page.click("button:text-is('Next')")
        page.wait_for_selector(f"text={number} of {LESSONS}")
        page.wait_for_selector(".x-picture > p:text-is('…')", state="detached")
        titles.append(page.text_content("h1"))
        assert page.locator(".x-picture .problem").count() == 0, titles[-1]
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert len(set(titles)) == LESSONS - 1
    assert page.locator("button:text-is('Next')").is_disabled()


def test_keys_and_the_address_lead_through_the_lessons(tour: RunningStudio, page: Any) -> None:
    page.goto(tour.address)
    page.goto(tour.url + "/learn#attention")
    page.wait_for_selector("text=Attention: tokens look at tokens")
    page.wait_for_selector(".x-lines")
    page.focus("h1")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".x-cell")
    assert page.url.endswith("#arithmetic")
    page.reload()
    page.wait_for_selector(".x-cell")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".x-lines")


def test_a_sentence_of_ones_own(tour: RunningStudio, page: Any) -> None:
    page.goto(tour.address)
    page.goto(tour.url + "/learn#tokens")
    page.wait_for_selector(".x-sentence input")
    page.fill(".x-sentence input", "anna <img src=x> lives in oslo")
    page.press(".x-sentence input", "Enter")
    page.wait_for_selector(".x-token >> text=anna")
    assert page.locator("main img").count() == 0
    assert page.locator(".x-token").last.text_content() == "oslo"


def test_steps_of_training_lower_the_loss(tour: RunningStudio, page: Any) -> None:
    page.goto(tour.address)
    page.goto(tour.url + "/learn#training")
    page.wait_for_selector("text=No step yet.")
    page.click("button:text-is('One step')")
    page.wait_for_selector("text=pure guessing")
    page.click("button:text-is('Ten steps')")
    page.wait_for_selector(".x-picture .charts svg")
    page.click("button:text-is('Start anew')")
    page.wait_for_selector("text=No step yet.")


def test_words_are_written_one_after_the_other(tour: RunningStudio, page: Any) -> None:
    page.goto(tour.address)
    page.goto(tour.url + "/learn#generate")
    page.wait_for_selector(".x-picture .x-token")
    before = page.locator(".x-picture .x-token").count()
    page.click("button:text-is('Take the likeliest')")
    page.wait_for_selector(f".x-picture .x-token >> nth={before}")
    page.click("button:text-is('Draw one')")
    page.wait_for_selector(f".x-picture .x-token >> nth={before + 1}")


def test_before_the_training_nothing_else_opens(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    page.goto(studio.url + "/learn#heads")
    page.wait_for_selector("text=Train it")
    assert page.locator("button:text-is('Next')").is_disabled()


@pytest.mark.parametrize("look", [(1400, "light"), (390, "dark")])
def test_each_lesson_is_for_everybody(tour: RunningStudio, browser: Any, look: tuple[int, str]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": look[0], "height": 900}, color_scheme=look[1])
    page = context.new_page()
    page.goto(tour.address)
    page.goto(tour.url + "/learn")
    page.wait_for_selector("text=Trained: tour-0001")
    for number in range(1, LESSONS + 1):
        page.wait_for_selector(f"text={number} of {LESSONS}")
        page.wait_for_selector(".x-picture > p:text-is('…')", state="detached")
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= look[0], number
        found = Axe().run(page).response["violations"]
        worst = [each for each in found if each["impact"] in ("serious", "critical")]
        told = [f"{each['id']}: {node['html'][:200]}" for each in worst for node in each["nodes"][:3]]
        assert not told, f"lesson {number}\n" + "\n".join(told)
        if number < LESSONS:
            page.click("button:text-is('Next')")
    context.close()
