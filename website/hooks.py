"""The hooks of mkdocs: add the pages that are made, and mend links to files outside docs/."""

import sys
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from milbench._utils.console import write_line
from website import (
    advice,
    advice_picture,
    command_line,
    formulas,
    leaderboard,
    losses,
    metrics,
    networks,
    notebooks,
    outside,
    python_names,
    reports,
    settings,
    tasks,
)
from website.outside import lead_to_the_site

NO_BREAK = "\N{NO-BREAK SPACE}"
MAKERS = (
    outside,
    command_line,
    metrics,
    settings,
    python_names,
    losses,
    tasks,
    networks,
    reports,
    leaderboard,
    notebooks,
)
"""The modules that make files of the site."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of losses, tasks, networks and public names into the navigation.

    mkdocs.yml has a word for each list of pages, such as LOSSES.
    """
    made = {
        "LOSSES": losses.titles(),
        "TASKS": tasks.titles(),
        "NETWORKS": networks.titles(),
        "API": python_names.titles(),
    }
    config.nav = _filled(config.nav, made)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that are made."""
    for maker in MAKERS:
        write_line(sys.stderr, f"making the pages of {maker.__name__}")
        for path, content in maker.files().items():
            files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001
    files: Files,  # noqa: ARG001
) -> str:
    """Let every link lead to the page that its file has on the site."""
    if page.file.src_uri == "losses.md":
        markdown = losses.linked(markdown)
    if page.file.src_uri == "tasks.md":
        markdown = tasks.pictured(markdown)
    return lead_to_the_site(markdown, page.file.src_uri)


def on_page_content(
    html: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001
    files: Files,  # noqa: ARG001
) -> str:
    """Draw the formulas of every page, and keep a mean, its spread and its tick on one line."""
    html = formulas.draw(html)
    if page.file.src_uri == leaderboard.PAGE:
        html = leaderboard.filled(html)
    if page.file.src_uri == advice.PAGE:
        html = advice_picture.filled(html)
    html = html.replace(" ± ", f"{NO_BREAK}±{NO_BREAK}")
    return html.replace(" ✓</td>", f"{NO_BREAK}✓</td>")


def _filled(nav: Any, made: dict[str, list[dict[str, str]]]) -> Any:
    """Return the navigation with lists of pages in place of the words that stand for them."""
    if isinstance(nav, dict):
        return {title: _filled(below, made) for title, below in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for below in nav:
        word = str(below)
        if word in made:
            entries += made[word]
        else:
            entries.append(_filled(below, made))
    return entries
