"""Write the advice of milbench/advice.toml into the documents that show it.

    python -m website.advice

writes docs/which-loss.md, and parts of README.md, docs/losses.md and docs/index.md. Such a part
stands between two comments, which readers of the page do not see.
"""

import posixpath
import re
from collections.abc import Iterator

from milbench.advice import Advice, Answer, Besides, Leaf, Question, advice, tried_first
from website import REPOSITORY
from website.outside import LINK

PAGE = "which-loss.md"
"""The page in docs/ with all questions and leaves."""
BEGIN = "<!-- {name}: written by python -m website.advice -->\n\n"
END = "\n\n<!-- end of {name} -->"
"""The comments around a part of a document."""
INTRODUCTION = """---
hide: [toc]
---

# Which loss?

Which loss should you try first on your bags? Answer one to four questions. The last answer leads
to a loss, with what shows it and what is not known. An order of losses holds at the length of
training at which it was measured
([what all of this rests on](docs/results.md#what-all-of-this-rests-on)).

<!-- picture -->

Also, whatever you answer: {besides}.
"""
LEAF = """## {title}

{way}**Try first: {tried_first}.** Why: {why}.

{options}

What shows it:

{evidence}

**Not known.** {not_known}
"""
OPTIONS = (
    "On the command line: {options}. "
    "[What it computes](docs/losses.md#losses-from-label-sets); "
    "[compare losses on your own data](docs/own-data.md)."
)


def documents() -> dict[str, str]:
    """Return path -> text of every document that shows the advice, as it has to be."""
    made = advice()
    readme = _with_part(_text("README.md"), "short answer", made.short)
    at_home = f"**The short answer.** {made.short} [What was found](results.md)"
    return {
        "README.md": _with_part(readme, "advice", table_with_reasons(made)),
        "docs/losses.md": _with_part(_text("docs/losses.md"), "advice", _for_docs(table(made))),
        "docs/index.md": _with_part(_text("docs/index.md"), "short answer", at_home),
        f"docs/{PAGE}": _for_docs(page(made)),
    }


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text("utf-8")


def page(made: Advice) -> str:
    """Return the page with all questions and leaves, in the order in which they follow."""
    links = [_link(entry.title) for entry in made.besides]
    sections = [INTRODUCTION.format(besides=", ".join(links))]
    for way, entry in in_order(made):
        made_way = _way(made, way)
        if isinstance(entry, Question):
            sections.append(_question(made, entry, made_way))
        else:
            sections.append(_leaf(entry, made_way))
    sections += [_leaf(entry, "") for entry in made.besides]
    return "\n".join(sections)


Way = tuple[tuple[str, Answer], ...]
"""The way to a question or leaf: the names of the questions before it, each with its answer."""


def in_order(made: Advice) -> Iterator[tuple[Way, Question | Leaf]]:
    """Yield every question, then what follows each of its answers, with the way to it."""

    def follow(name: str, way: Way) -> Iterator[tuple[Way, Question | Leaf]]:
        if name in made.leaves:
            yield way, made.leaves[name]
            return
        question = made.questions[name]
        yield way, question
        for answer in question.answers:
            yield from follow(answer.to, (*way, (name, answer)))

    return follow(made.first, ())


def heading(entry: Question | Leaf | Besides) -> str:
    """Return the heading of a question or leaf on the page."""
    return entry.asks if isinstance(entry, Question) else entry.title


def anchor(title: str) -> str:
    """Return the address of a heading in its page, on the site and on GitHub.

    Examples:
        >>> anchor("They do: what is the network for?")
        'they-do-what-is-the-network-for'
    """
    kept = re.sub(r"[^\w\s-]", "", title.lower())
    return re.sub(r"\s+", "-", kept)


def named(made: Advice, name: str) -> Question | Leaf:
    """Return the question or leaf with a name."""
    return made.questions[name] if name in made.questions else made.leaves[name]


def table(made: Advice) -> str:
    """Return the advice as a table. Each row leads to its section of the page."""
    lines = ["| your bags | try first |", "| --- | --- |"]
    for entry in made.entries:
        link = f"[{entry.bags}](docs/{PAGE}#{anchor(entry.title)})"
        lines.append(f"| {link} | {tried_first(entry)} |")
    return "\n".join(lines)


def table_with_reasons(made: Advice) -> str:
    """Return the advice as a table with a reason in each row."""
    lines = ["|your bags|try first|why|", "|---|---|---|"]
    lines += [f"|{entry.bags}|{tried_first(entry)}|{entry.why}|" for entry in made.entries]
    return "\n".join(lines)


def _question(made: Advice, question: Question, way: str) -> str:
    """Return the section of a question. Its answers are links."""
    lines = [f"## {question.asks}", ""]
    lines.append(f"{way}{question.explains}")
    lines.append("")
    for answer in question.answers:
        link = f"[{answer.says}](#{anchor(heading(named(made, answer.to)))})"
        lines.append(f"- **{link}**: {answer.example}")
    return "\n".join([*lines, ""])


def _leaf(entry: Leaf | Besides, way: str) -> str:
    """Return the section of a leaf."""
    return LEAF.format(
        title=entry.title,
        way=way,
        tried_first=tried_first(entry),
        why=entry.why,
        options=_options(entry),
        evidence="\n".join(f"- {line}" for line in entry.evidence),
        not_known=entry.not_known,
    )


def _options(entry: Leaf | Besides) -> str:
    """Return how the losses of a leaf are named on the command line."""
    if isinstance(entry, Besides):
        return "[Compare losses on your own data](docs/own-data.md)."
    options = " or ".join(f"`{variant.options}`" for variant in entry.try_first)
    return OPTIONS.format(options=options)


def _way(made: Advice, way: Way) -> str:
    """Return the answers on the way as a paragraph. Each leads back to its question."""
    if not way:
        return ""
    links = []
    for name, answer in way:
        question = made.questions[name].asks
        links.append(f"[{answer.says}](#{anchor(question)})")
    return f"*You answered:* {' → '.join(links)}\n\n"


def _link(title: str) -> str:
    return f"[{title.lower()}](#{anchor(title)})"


def _for_docs(text: str) -> str:
    """Return a text whose links begin at the folder docs/, not at the root of the repository."""

    def moved(link: re.Match[str]) -> str:
        before, path, after = link.groups()
        return f"{before}{posixpath.relpath(path, 'docs')}{after}"

    return LINK.sub(moved, text)


def _with_part(document: str, name: str, text: str) -> str:
    """Return a document with a new text between the comments of a part.

    Raises:
        ValueError: the document has lost these comments.
    """
    begin = BEGIN.format(name=name)
    end = END.format(name=name)
    before, _, rest = document.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"a document lacks the comments around {name}")
    return before + begin + text + end + after


def main() -> None:
    """Write the documents."""
    for path, text in documents().items():
        (REPOSITORY / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
