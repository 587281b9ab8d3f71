"""Build the site: the pages of docs/, and pages made from registries, docstrings and reports.

`make docs` runs mkdocs with the hooks of `website.hooks`, and then `website.check`. The other
modules return files of the site by their paths, and only `website.hooks` knows mkdocs. This package
is not installed with milbench.
"""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
