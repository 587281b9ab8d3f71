"""The page of the metrics, from `milbench.contracts.metric_info`."""

from milbench.contracts.metric_info import METRICS

PAGE = """# Metrics

A metric has a name in results and specs (`test/set_error` is the set error on test bags), a label in tables and
figures, and a direction. Shares are stored in 0 to 1 and shown in percent. How losses are compared by a metric:
[statistics of a report](../statistics.md).
"""


def files() -> dict[str, str]:
    """Return the page, with a section for every metric."""
    sections = [
        f"## {metric.label} {{ #{name} }}\n\n`{name}` · {'lower' if metric.lower_is_better else 'higher'} is better"
        f"{' · in percent' if metric.percent else ''}\n\n{metric.definition}\n"
        for name, metric in METRICS.items()
    ]
    return {"reference/metrics.md": "\n".join([PAGE, *sections])}
