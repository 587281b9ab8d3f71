"""The tables of a spec: what all classes that describe one have in common."""

from pydantic import ConfigDict

TABLE = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""The configuration of a class that is a table of a spec: the texts below its fields are their descriptions."""
