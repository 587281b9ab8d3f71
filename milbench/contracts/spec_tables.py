"""The configuration that all classes for the tables of a spec have in common."""

from pydantic import ConfigDict

TABLE = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""The configuration of a pydantic class that describes a table of a spec.

The table must have no other keys than the fields of the class. The docstrings below the fields are
their descriptions, which `milbench list settings` shows.
"""
