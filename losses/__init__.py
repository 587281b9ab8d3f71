"""One loss a file; `milbench.registry` finds every one, nothing is listed here."""
