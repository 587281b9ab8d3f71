"""Reports: results become statistics, tables, figures and one self-contained page, without torch."""
