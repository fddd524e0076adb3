"""The playground in a browser: a person generates, forks and goes back, searches, classifies, and copies."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from headway.api.bundle import load
from tests.studio.conftest import TOKEN, RunningStudio
from tests.studio.play.conftest import XSS


def open_page(page: Any, studio: RunningStudio, **query: str) -> None:
    words = "&".join(f"{key}={quote(value)}" for key, value in query.items())
    page.goto(f"{studio.url}/playground?token={TOKEN}&{words}")


def generate(page: Any, text: str) -> None:
    page.get_by_label("Text to continue").fill(text)
    page.get_by_label("Max tokens").fill("12")
    page.get_by_label("Seed").fill("3")
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("reached the most tokens").first.wait_for()


def test_a_person_generates_forks_and_goes_back(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="tiny-0001")
    generate(page, "The import")
    tokens = page.locator(".tokens .token")
    assert tokens.count() == 12
    tokens.nth(0).focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    label = tokens.nth(3).get_attribute("aria-label")
    assert page.locator(".alternatives .taken, .alternatives code").first.is_visible()
    page.keyboard.press("Enter")
    page.locator(".alternatives button.alternative:not(.taken)").first.click()
    page.get_by_role("button", name="branch 2").wait_for()
    page.get_by_text("reached the most tokens").wait_for()
    assert tokens.count() == 3 + 1 + 12 and tokens.nth(3).get_attribute("aria-label") != label
    page.get_by_role("button", name="← Back").click()
    assert tokens.count() == 12 and tokens.nth(3).get_attribute("aria-label") == label

    page.get_by_text("Copy as command").click()
    page.get_by_text("headway.load(").wait_for()
    assert "max_tokens=12" in page.locator(".copies pre").first.inner_text()
    page.get_by_text("Tried in this tab: 1").click()
    page.get_by_role("button", name="Score a text").click()
    page.get_by_label("Text to score").fill("The import")
    page.get_by_role("button", name="Score", exact=True).click()
    page.get_by_text("perplexity").first.wait_for()
    page.locator(".tried li button").last.click()
    assert page.get_by_label("Text to continue").input_value() == "The import"


def test_stop_stops(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="tiny-0001")
    page.get_by_label("Text to continue").fill("The")
    page.get_by_label("Max tokens").fill("100000")
    page.get_by_role("button", name="Generate").click()
    page.locator(".tokens .token").nth(5).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("stopped").wait_for()
    assert page.get_by_role("button", name="Stop").is_disabled()


def test_two_models_on_one_prompt_and_a_name_that_is_html(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="tiny-0001", **{"with": XSS})
    generate(page, XSS)
    for number in range(2):
        page.locator(".output").nth(number).get_by_text("reached the most tokens").wait_for()
    first, second = (page.locator(".tokens").nth(i).inner_text() for i in range(2))
    assert first == second, "the same weights, the same seed"
    assert page.locator("main img").count() == 0 and page.get_by_role("heading", name=XSS).is_visible()


def test_a_beam_search_is_drawn(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="tiny-0001", mode="beams")
    page.get_by_label("Text to continue").fill("The")
    page.get_by_role("button", name="Search", exact=True).click()
    page.locator(".beam-tree").wait_for()
    assert page.locator(".beam-tree g.kept").count() >= 4
    assert page.locator("table tbody tr").count() == 4


def test_a_person_chats(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="chat-0001")
    page.get_by_label("Max tokens").fill("5")
    for number, words in enumerate((XSS, "And then?"), start=1):
        page.get_by_label("Your message").fill(words)
        page.keyboard.press("Enter")
        page.locator(".talk .output").nth(number - 1).get_by_text("tokens").wait_for()
        page.get_by_role("button", name="Stop").and_(page.locator(":disabled")).wait_for()
    assert page.locator(".said").all_inner_texts() == [XSS, "And then?"]


@pytest.mark.parametrize(("model", "shown"), [("classify-0001", "negative"), ("images-0001", "where it looked")])
def test_a_person_runs_a_task(model: str, shown: str, playing: RunningStudio, page: Any) -> None:
    from playwright.sync_api import expect

    open_page(page, playing)
    page.get_by_role("combobox", name="Model").fill(model[:8])
    expect(page.locator("[role=option]")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".verdict").wait_for()
    assert page.get_by_text(shown).first.is_visible()
    bundle = load(playing.studio.runs / model)
    text = "drawn:circle" if "images" in model else page.locator("textarea").input_value()
    assert page.locator(".verdict").inner_text() == bundle.predict(text)["label"]


def test_a_model_that_is_not_there_is_explained(playing: RunningStudio, page: Any) -> None:
    open_page(page, playing, model="gpt2-tiny")
    page.get_by_text("its weights are random").wait_for()
