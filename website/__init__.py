"""How the site is built: the pages of docs/, and those that are made from the registries, docstrings and reports.

`make docs` runs mkdocs with the hooks of `website.hooks` and then `website.check`. Nothing here is
installed with milbench. Every other module returns files of the site by their path in it; only
`website.hooks` knows mkdocs.
"""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
