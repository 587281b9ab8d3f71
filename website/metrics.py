"""The page of the metrics, from `milbench.contracts.metric_info`."""

from milbench.contracts.metric_info import METRICS, Metric

PAGE = """# Metrics

A metric has a name in results and specs (`test/set_error` is the set error on test bags),
a label in tables and figures, and a direction. Shares are stored in 0 to 1 and shown in percent.
How losses are compared by a metric: [statistics of a report](../statistics.md).
"""


def files() -> dict[str, str]:
    """Return the page, with a section for every metric."""
    sections = [_section(name, metric) for name, metric in METRICS.items()]
    return {"reference/metrics.md": "\n".join([PAGE, *sections])}


def _section(name: str, metric: Metric) -> str:
    """Return heading, direction and definition of a metric."""
    facts = [f"`{name}`"]
    facts.append("lower is better" if metric.lower_is_better else "higher is better")
    if metric.percent:
        facts.append("in percent")
    return f"## {metric.label} {{ #{name} }}\n\n{' · '.join(facts)}\n\n{metric.definition}\n"
