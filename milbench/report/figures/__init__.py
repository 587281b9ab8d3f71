"""The figures of a report, made with matplotlib."""
