"""The advice on which loss to try first: its questions, its documents, and its page."""

import re
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from milbench.advice import Besides, Leaf, Variant, advice, tried_first
from milbench.contracts.load import load_loss
from milbench.contracts.registry import losses
from milbench.networks.known_networks import networks
from tests._helpers.command_line import REPOSITORY, Milbench
from tests.report.test_page import opened
from website import advice_picture
from website.advice import PAGE, anchor, documents, heading, in_order

NEEDS_BROWSER = pytest.mark.skipif(
    not (shutil.which("chromium") or shutil.which("chromium-browser")),
    reason="no chromium here: apt-get install chromium",
)
VARIANTS = {
    variant.name: variant for leaf in advice().leaves.values() for variant in leaf.try_first
}
LINK = re.compile(r"\]\(([^)#]+)#?([^)]*)\)")


def test_every_question_and_leaf_is_reached_in_one_way() -> None:
    made = advice()
    answers = [answer for question in made.questions.values() for answer in question.answers]
    reached = Counter([made.first, *[answer.to for answer in answers]])
    assert reached == Counter([*made.questions, *made.leaves])


def test_no_two_sections_have_the_same_address() -> None:
    headings = [heading(entry) for _, entry in in_order(advice())]
    headings += [entry.title for entry in advice().besides]
    addresses = Counter(anchor(text) for text in headings)
    assert max(addresses.values()) == 1


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_can_be_trained(variant: Variant) -> None:
    parameters: dict[str, Any] = {"head": variant.head} if variant.head else {}
    assert load_loss(variant.loss, **parameters).name == variant.loss
    assert variant.network in ["", *networks().names()]


@pytest.mark.parametrize("entry", advice().entries, ids=lambda entry: entry.title)
def test_every_loss_to_try_exists(entry: Leaf | Besides) -> None:
    named = re.findall(r"`([\w-]+)", tried_first(entry))
    assert set(named) <= set(losses().names())


@pytest.mark.parametrize("entry", advice().entries, ids=lambda entry: entry.title)
def test_evidence_leads_to_a_section_that_exists(entry: Leaf | Besides) -> None:
    links = LINK.findall(" ".join(entry.evidence))
    assert links
    for path, section in links:
        text = (REPOSITORY / path).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert section in ["", *[anchor(line) for line in headings]]


@pytest.mark.parametrize("path", documents())
def test_a_document_has_the_advice_of_the_one_source(path: str) -> None:
    text = (REPOSITORY / path).read_text("utf-8")
    assert text == documents()[path], "run python -m website.advice"


def test_the_list_of_losses_says_which_to_try_first(milbench: Milbench) -> None:
    printed = milbench("list", "losses").done()
    assert "one class, present or not: noisy-or (sigmoid)" in printed
    assert printed.splitlines()[-1].startswith("next: milbench run --loss")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page without the rest of the site, in a file."""
    source = (REPOSITORY / "docs" / PAGE).read_text("utf-8")
    # The lines between the first two rules are for the site alone.
    _, _, text = source.split("---\n", 2)
    markdown = MarkdownIt("commonmark").render(text)
    with_addresses = re.sub(
        r"<h2>(.*?)</h2>", lambda found: f'<h2 id="{anchor(found[1])}">{found[1]}</h2>', markdown
    )
    script = (REPOSITORY / "docs" / "assets" / "which-loss.js").read_text("utf-8")
    style = (REPOSITORY / "website" / "site.css").read_text("utf-8")
    filled = advice_picture.filled(with_addresses).replace(
        advice_picture.SCRIPT, f"<script>{script}</script>"
    )
    file = tmp_path / "which-loss.html"
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title>'
        f"<style>{style}</style><main><article>{filled}</article></main>",
        "utf-8",
    )
    return file


def sections(tab: Any) -> list[str]:
    """Return the headings that can be seen."""
    return list(tab.locator("h2:visible").all_inner_texts())


def wait_for(tab: Any, title: str) -> None:
    """Wait until a section is seen alone: the script shows it a moment after a click."""
    tab.wait_for_function(
        """(title) => {
          const shown = [...document.querySelectorAll("article h2")].filter((h2) => !h2.hidden);
          return shown.length === 1 && shown[0].textContent.startsWith(title);
        }""",
        arg=title,
    )


@NEEDS_BROWSER
def test_answers_lead_to_a_loss(page: Path) -> None:
    with opened(page) as tab:
        asked = {
            "One class or several?": "Several classes",
            "Can two classes be at one place?": "No, one at most",
            "Do the classes of a bag predict one another?": "Not that I know",
            "Classes do not predict one another: what is the network for?": "Use its probabilities",
        }
        for question, answer in asked.items():
            wait_for(tab, question)
            tab.locator("li a:visible", has_text=answer).click()
        wait_for(tab, "Probabilities with one class at a place")
        assert tab.locator("strong:visible").first.inner_text() == "Try first: exact."
        assert tab.url.endswith("#probabilities-with-one-class-at-a-place")
        tab.go_back()
        wait_for(tab, "Classes do not predict one another: what is the network for?")


@NEEDS_BROWSER
def test_questions_are_answered_by_the_keyboard(page: Path) -> None:
    with opened(page) as tab:
        answer = tab.locator("li a:visible", has_text="Several classes")
        answer.focus()
        tab.keyboard.press("Enter")
        tab.wait_for_function("document.activeElement.tagName === 'H2'")
        # From the heading of the next question the first link is the way back to this one.
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.wait_for_function("document.activeElement.id === 'one-class-or-several'")


@NEEDS_BROWSER
def test_the_address_of_a_leaf_opens_it(page: Path) -> None:
    with opened(page) as tab:
        tab.goto(f"{page.as_uri()}#classes-that-overlap")
        tab.reload()
        assert sections(tab) == ["Classes that overlap"]
        current = tab.locator(".advice a[aria-current]:visible")
        assert current.get_attribute("href") == "#classes-that-overlap"


@NEEDS_BROWSER
def test_without_scripts_every_question_and_leaf_is_there(page: Path) -> None:
    with opened(page, java_script_enabled=False) as tab:
        expected = [heading(entry) for _, entry in in_order(advice())]
        expected += [entry.title for entry in advice().besides]
        assert sections(tab) == expected


SCREENS = pytest.mark.parametrize("width", [390, 1280], ids=["telephone", "laptop"])


@NEEDS_BROWSER
@SCREENS
def test_every_question_and_leaf_is_a_link_of_the_picture(page: Path, width: int) -> None:
    with opened(page, viewport={"width": width, "height": 800}) as tab:
        links = tab.locator(".advice a:visible").all()
        addresses = [f"#{anchor(heading(entry))}" for _, entry in in_order(advice())]
        assert [link.get_attribute("href") for link in links] == addresses
        links[-1].click()
        wait_for(tab, heading(list(in_order(advice()))[-1][1]))


@NEEDS_BROWSER
@SCREENS
def test_the_picture_fits_its_screen_and_texts_fit_their_boxes(page: Path, width: int) -> None:
    wide_texts = """() => [...document.querySelectorAll(".advice text")].filter((text) => {
      const box = text.closest("a").querySelector("rect").getBoundingClientRect();
      return text.getBoundingClientRect().right > box.right;
    }).map((text) => text.textContent)"""
    with opened(page, viewport={"width": width, "height": 800}) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(wide_texts) == []


@NEEDS_BROWSER
def test_axe_finds_nothing_to_complain_of(page: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(page) as tab:
        violations = Axe().run(tab).response["violations"]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []


@pytest.mark.parametrize("draw", [advice_picture.wide, advice_picture.narrow])
def test_boxes_of_the_picture_do_not_overlap(draw: Any) -> None:
    boxes = draw(advice_picture.nodes_of(advice()))
    for first, second in combinations(boxes, 2):
        are_side_by_side = first.x + first.width <= second.x or second.x + second.width <= first.x
        are_one_below_the_other = (
            first.y + first.height <= second.y or second.y + second.height <= first.y
        )
        assert are_side_by_side or are_one_below_the_other
