"""One loss a file; `milbench.api.registry` finds each, nothing is listed here."""
