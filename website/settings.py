"""The page of all settings of a spec, made from the descriptions of their fields."""

from milbench.experiment.spec_files import describe_settings

PAGE = """# Settings

Every key of a spec, with its default; `milbench list settings` prints the same. On the command line
`-p KEY=VALUE` sets those that begin with `recipe.`, `run.` or `tune.`, and
[a few others](../running.md). A task may have other defaults for its recipe.

| setting | default | meaning |
|---|---|---|
"""


def files() -> dict[str, str]:
    """Return the page, with a row for every setting."""
    rows = []
    for name, default, meaning in describe_settings():
        # In a table of Markdown a bar would begin another cell.
        text = " ".join(meaning.split()).replace("|", "\\|")
        shown_default = f"`{default}`" if default else ""
        rows.append(f"| `{name}` | {shown_default} | {text} |")
    return {"reference/settings.md": PAGE + "\n".join(rows) + "\n"}
