"""X-ray in a browser: from the flow of a model down to the arithmetic of one cell, and changes of the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image

from headway.config.presets import vit
from tests.inspect.conftest import config_of, made
from tests.studio.conftest import RunningStudio

NASTY = "a<img src=x onerror=document.title=1>"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    config = {"gpt2": config_of("gpt2"), "t5": config_of("t5"), "vit": vit(2, 32, 4, image=16, patch=4, labels=3)}
    return {name: made(each, name).save(place / name) for name, each in config.items()}


def opened(page: Any, studio: RunningStudio, folder: Path, **words: Any) -> Any:
    page.goto(studio.address)
    page.goto(f"{studio.url}/xray?{urlencode({'model': str(folder), **words})}")
    page.wait_for_selector(".x-tabs")
    return page


def test_from_the_flow_to_one_cell(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input="the cat")
    assert "2 layers × 4 heads" in page.text_content(".lead")
    page.wait_for_selector(".flow .band")
    assert page.locator(".flow .name").count() == 7
    page.click(".flow .name >> nth=2")
    page.wait_for_selector(".flow .name[aria-pressed=true][aria-label^='token 3']")
    assert page.locator(".x-says .x-bars li").count() == 8
    page.focus(".flow .band >> nth=1")
    page.keyboard.press("Enter")
    page.wait_for_selector(".x-block")
    page.click(".x-thumbs button >> nth=2")
    page.wait_for_selector(".matrix canvas")
    page.focus(".matrix canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):  # the first key shows the first cell
        page.keyboard.press(key)
    page.wait_for_selector(".x-cell")
    cell = page.text_content(".x-cell")
    dot = float(re.search(r"and add: (-?[\d.]+)\.", cell)[1])  # type: ignore[index]
    scaled = float(re.search(r"× [\d.]+ = (-?[\d.]+)\.", cell)[1])  # type: ignore[index]
    assert scaled == pytest.approx(dot / 8**0.5, abs=0.01)  # heads are 8 wide
    assert {"layer=1", "head=2", "query=1", "key=1"} <= set(page.url.split("?")[1].split("&"))
    page.reload()  # the address says all of it
    page.wait_for_selector(".x-cell")
    assert page.text_content(".x-cell") == cell
    page.click(".x-crumbs >> text=Model")
    page.wait_for_selector(".x-crumbs", state="detached")


def test_a_mask_is_told(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input="the cat", layer=0, head=0, query=1, key=4)
    page.wait_for_selector(".x-cell")
    assert "must not see it" in page.text_content(".x-cell")


def test_a_head_taken_away_moves_the_answer(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input="the cat", view="change")
    page.wait_for_selector(".head-grid canvas")
    page.focus(".head-grid canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".x-bars.two")
    assert "Layer 1, head 2" in page.text_content(".x-list")
    assert "nats" in page.text_content(".x-effect")
    slider = page.locator(".x-strength input")
    slider.focus()
    with page.expect_request("**/api/xray/change") as asked:
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
    assert asked.value.post_data_json["changes"][0]["factor"] == 0.1
    assert slider.evaluate("each => each === document.activeElement")  # a slider stays while it moves
    page.click("text=Undo all")
    page.wait_for_selector(".x-bars:not(.two)")


def test_the_other_views(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input="the cat")
    page.click("text=Logit lens")
    page.wait_for_selector(".x-heat tbody tr")
    assert page.locator(".x-heat tbody tr").count() == 3
    page.focus("#x-tab-lens")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".head-grid canvas")
    page.click("text=Whole layers, and attention rollout")
    page.wait_for_selector(".matrix canvas[aria-label='rollout up to layer 2']")
    page.select_option("select[aria-label=map]", "mean")
    page.wait_for_selector(".matrix canvas[aria-label='mean of the heads of layer 2']")
    page.click("text=What each head looks at, as a table")
    assert page.locator("table:has(caption:text-is('Heads')) tbody tr").count() == 8
    page.click("text=Two inputs")
    page.fill("textarea >> nth=1", "the rat")
    page.click("button:text-is('Patch')")
    page.wait_for_selector(".x-heat")
    assert page.locator(".x-heat").count() == 2


def test_pinned_heads_stay_for_the_next_input(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input="the cat", layer=0, head=1)
    page.click("button:text-is('Pin')")
    page.wait_for_selector(".x-pins figure")
    page.fill("textarea >> nth=0", "a dog")
    page.keyboard.press("Enter")
    page.wait_for_url("**input=a+dog**")
    page.wait_for_selector(".x-pins figure >> text=the cat")


def test_an_encoder_decoder_has_three_kinds(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["t5"], input="the cat", view="heads")
    for kind in ("encoder", "cross", "decoder"):
        page.click(f"[role=group] >> text={kind}")
        page.wait_for_selector(f"[aria-pressed=true] >> text={kind}")
        page.wait_for_selector(".head-grid canvas")


def test_attention_over_a_picture_that_is_sent(
    studio: RunningStudio, page: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    Image.new("RGB", (16, 16), "red").save(tmp_path / "red.png")
    opened(page, studio, folders["vit"], input="drawn:circle", layer=1, head=2)
    page.set_input_files("input[type=file]", tmp_path / "red.png")
    page.wait_for_url("**red.png**")
    page.wait_for_load_state("networkidle")  # the picture of before stands there until the new one has come
    page.wait_for_selector("[aria-label^='The picture']")
    page.focus("[aria-label^='The picture']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**query=2**")  # the second patch stands after the class token
    assert page.locator("button:text-is('[CLASS]')").get_attribute("aria-pressed") == "false"


def test_text_of_a_user_stays_text(studio: RunningStudio, page: Any, folders: dict[str, Path]) -> None:
    opened(page, studio, folders["gpt2"], input=NASTY, layer=0, head=0, query=3, key=1)
    page.wait_for_selector(".x-cell")
    for view in ("Logit lens", "All heads", "Flow"):
        page.click(f"role=tab >> text={view}")
        page.wait_for_timeout(200)
    assert page.title().startswith("X-ray") and page.locator("main img").count() == 0


def test_errors_say_what_to_do(browser: Any, studio: RunningStudio, folders: dict[str, Path]) -> None:
    page = browser.new_page()  # the browser notes a refused request on its console
    opened(page, studio, folders["gpt2"], input="the cat")
    page.fill("textarea >> nth=0", "   ")
    page.press("textarea >> nth=0", "Enter")
    page.wait_for_selector(".problem >> text=the text is empty")
    page.goto(f"{studio.url}/xray?model=no-such-run")
    page.wait_for_selector(".problem >> text=no-such-run")
    page.close()


@pytest.mark.parametrize("look", [(1400, "dark"), (390, "light")])
def test_each_view_is_for_everybody(
    studio: RunningStudio, browser: Any, folders: dict[str, Path], look: tuple[int, str]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": look[0], "height": 900}, color_scheme=look[1])
    page = context.new_page()
    for view, wanted in (
        ("flow", ".x-cell"), ("heads", ".x-cell"), ("lens", ".x-heat"), ("change", ".head-grid"), ("patch", ".card"),
    ):  # fmt: skip
        opened(page, studio, folders["gpt2"], input="the cat", view=view, layer=1, head=0, query=4, key=2)
        page.wait_for_selector(wanted)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= look[0], view
        found = Axe().run(page).response["violations"]
        worst = [each for each in found if each["impact"] in ("serious", "critical")]
        told = [f"{each['id']}: {node['html'][:200]}" for each in worst for node in each["nodes"][:3]]
        assert not told, view + "\n" + "\n".join(told)
    context.close()
