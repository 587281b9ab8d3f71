"""Reports: statistics, tables, figures and a self-contained page from results, without torch."""
