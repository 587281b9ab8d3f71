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
to a loss, with what shows it and what is not known.

Words of the answers: *may be the best* means [not shown to be worse](docs/report.md#the-tick), and
holds at the length of training that is named. *Set error* is the share of bags whose label set is
wrong. Differences that *may not show* are often missed: fewer than four of five such comparisons
find them. *Settings* are what was tried for each loss before it was compared
([what all of this rests on](docs/results.md#what-all-of-this-rests-on)).

<!-- picture -->

Also, whatever you answer: {besides}.
"""
QUESTION = """## {asks}

{way}{explains}

{answers}
"""
LEAF = """## {title}

{way}**Try first: {tried_first}.** Why: {why}.

{how}

What shows it:

{evidence}

**Not known.** {not_known}
"""
HOW = (
    "In Python: {calls}, [in your own training loop](docs/training-loop.md). "
    "On the command line: {options}, [on your own data](docs/own-data.md). "
    "[What it computes](docs/losses.md#losses-from-label-sets)."
)
COMPARE = "[Compare losses on your own data](docs/own-data.md)."

Way = tuple[tuple[Question, Answer], ...]
"""The way to a question or leaf: the questions before it, each with its answer."""


def documents() -> dict[str, str]:
    """Return path -> text of every document that shows the advice, as it has to be."""
    source = advice()
    readme = _with_part(_text("README.md"), "short answer", source.short)
    at_home = f"**The short answer.** {source.short} [What was found](results.md)"
    return {
        "README.md": _with_part(readme, "advice", table_with_reasons(source)),
        "docs/losses.md": _with_part(_text("docs/losses.md"), "advice", _for_docs(table(source))),
        "docs/index.md": _with_part(_text("docs/index.md"), "short answer", at_home),
        f"docs/{PAGE}": _for_docs(page(source)),
    }


def page(source: Advice) -> str:
    """Return the page with all questions and leaves, in the order in which they follow."""
    links = [f"[{entry.title.lower()}](#{anchor(entry.title)})" for entry in source.besides]
    sections = [INTRODUCTION.format(besides=", ".join(links))]
    for way, entry in in_order(source):
        if isinstance(entry, Question):
            sections.append(_question(source, entry, way))
        else:
            sections.append(_leaf(entry, way))
    sections += [_leaf(entry, ()) for entry in source.besides]
    return "\n".join(sections)


def table(source: Advice) -> str:
    """Return the advice as a table. Each row leads to its section of the page."""
    lines = ["| your bags | try first |", "| --- | --- |"]
    for entry in source.entries:
        link = f"[{entry.bags}](docs/{PAGE}#{anchor(entry.title)})"
        lines.append(f"| {link} | {tried_first(entry)} |")
    return "\n".join(lines)


def table_with_reasons(source: Advice) -> str:
    """Return the advice as a table with a reason in each row."""
    lines = ["|your bags|try first|why|", "|---|---|---|"]
    lines += [f"|{entry.bags}|{tried_first(entry)}|{entry.why}|" for entry in source.entries]
    return "\n".join(lines)


def in_order(source: Advice) -> Iterator[tuple[Way, Question | Leaf]]:
    """Yield every question, and behind it what follows each of its answers, with the way to it."""

    def follow(name: str, way: Way) -> Iterator[tuple[Way, Question | Leaf]]:
        entry = _named(source, name)
        yield way, entry
        if isinstance(entry, Question):
            for answer in entry.answers:
                yield from follow(answer.to, (*way, (entry, answer)))

    return follow(source.first, ())


def heading(entry: Question | Leaf | Besides) -> str:
    """Return the heading of a section of the page."""
    return entry.asks if isinstance(entry, Question) else entry.title


def anchor(text: str) -> str:
    """Return the address of a heading in its page, which is the same on the site and on GitHub.

    Examples:
        >>> anchor("They do: what is it for?")
        'they-do-what-is-it-for'
    """
    letters = re.sub(r"[^\w\s-]", "", text.lower())
    return re.sub(r"\s+", "-", letters)


def _named(source: Advice, name: str) -> Question | Leaf:
    """Return the question or leaf with a name."""
    return source.questions[name] if name in source.questions else source.leaves[name]


def _question(source: Advice, question: Question, way: Way) -> str:
    """Return the section of a question. Its answers are links."""
    lines = []
    for answer in question.answers:
        address = anchor(heading(_named(source, answer.to)))
        lines.append(f"- **[{answer.says}](#{address})**: {answer.example}")
    return QUESTION.format(
        asks=question.asks, way=_way(way), explains=question.explains, answers="\n".join(lines)
    )


def _leaf(entry: Leaf | Besides, way: Way) -> str:
    """Return the section of a leaf."""
    return LEAF.format(
        title=entry.title,
        way=_way(way),
        tried_first=tried_first(entry),
        why=entry.why,
        how=_how(entry),
        evidence="\n".join(f"- {line}" for line in entry.evidence),
        not_known=entry.not_known,
    )


def _way(way: Way) -> str:
    """Return the answers on the way as a paragraph. Each leads back to its question."""
    if not way:
        return ""
    links = [f"[{answer.says}](#{anchor(question.asks)})" for question, answer in way]
    return f"*You answered:* {' → '.join(links)}\n\n"


def _how(entry: Leaf | Besides) -> str:
    """Return how the losses of a leaf are used."""
    if isinstance(entry, Besides):
        return COMPARE
    options = " or ".join(f"`{variant.options}`" for variant in entry.try_first)
    calls = " or ".join(f"`{variant.call}`" for variant in entry.try_first)
    return HOW.format(calls=calls, options=options)


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


def _text(path: str) -> str:
    return (REPOSITORY / path).read_text("utf-8")


def main() -> None:
    """Write the documents."""
    for path, text in documents().items():
        (REPOSITORY / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
