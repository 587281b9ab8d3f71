"""The pages of the networks: drawing or formula, suitable tasks, results, docstring and code."""

import inspect
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from milbench.contracts.parameters import constructor_parameters, network_parameters
from milbench.contracts.registry import tasks
from milbench.networks.backbone import Backbone, backbones
from milbench.networks.known_networks import OF_BAGS, loss_heads, suited
from website import REPOSITORY, lengths, standing
from website.network_pictures import picture

SAMPLES = {
    # Images: channels, height and width.
    "extended-digits": (1, 20, 20),
    "extended-mnist": (1, 56, 56),
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "image-bags": (3, 64, 64),
    "svhn": (3, 64, 64),
    # Sets: instances and features.
    "handwritten-words": (7, 128),
    "mnist-bags": (10, 784),
    "feature-bags": (5, 16),
    "synthetic-bags": (10, 2),
    # Sequences: features and frames.
    "sequence-bags": (32, 124),
    "sound-events": (32, 124),
    "soundscapes": (32, 624),
    "spoken-digits": (32, 124),
}
"""For each task, the shape of the bag with which its networks are drawn."""
CLASSES = 10
"""The number of classes that networks are drawn for."""
SEED = 0
"""The seed of the initial weights of a drawn network. A drawing does not show weights."""
NETWORK_OF_IMAGES = "torchvision"
"""The page of the networks that suit all tasks with images."""
FORMULAS = {
    "gated-attention": (
        r"$$z_c = u_c^\top \sum_k a_{ck} h_k + b_c, \qquad a_{ck} = "
        r"\operatorname{softmax}_k\bigl(w_c^\top (\tanh(V h_k) \odot \sigma(U h_k))\bigr)$$"
    ),
    "dsmil": (
        r"$$z_c = \tfrac{1}{2}\bigl(s_{c m_c} + u_c^\top \sum_k a_{ck} B h_k + b'_c\bigr), \qquad "
        r"s_{ck} = w_c^\top h_k + b_c, \quad m_c = \operatorname{argmax}_k s_{ck},$$"
        "\n\n"
        r"$$a_{ck} = \operatorname{softmax}_k\bigl(q_k^\top q_{m_c} / \sqrt{Q}\bigr), \qquad "
        r"q_k = \tanh(A h_k)$$"
    ),
    "set-transformer": (
        r"$$z_c = u_c^\top \sum_k a_{ck} V x_k + b_c, \qquad "
        r"a_{ck} = \operatorname{softmax}_k\bigl(s_c^\top K x_k / \sqrt{D}\bigr)$$"
    ),
    "context": (
        r"$$y_k = h_k + W \operatorname{MultiHead}(\operatorname{LN}(h))_k, \qquad "
        r"x_k = y_k + W_2 \operatorname{relu}(W_1 \operatorname{LN}(y_k)), \qquad "
        r"z_{ck} = u_c^\top \operatorname{LN}(x_k) + b_c$$"
    ),
}
"""The formulas of the networks that see a whole bag, which are shown instead of drawings.

h_k are the features of instance k, and x_k its features after self-attention. Networks that pool
instances have one logit z_c for each class; `context` has a logit z_ck at each position. a_ck is
the share (the attention) of instance k in what is pooled for class c. In `dsmil`, s_ck is the logit
of instance k alone, m_c the instance with the largest one, and q_k the query of instance k, with
Q numbers. In `set-transformer`, s_c is a learnt vector of class c, and D the number of features
in x_k. LN is layer normalisation, MultiHead self-attention with several heads. All other letters
are learnt weights: u, w, A, B, K, U, V and W are vectors and matrices, b and b' biases. The
docstrings of the networks, which the pages show as well, say the same.
"""
# The page of the networks of one name, and its parts. DRAWING is for a network without a formula.
PAGE = """# {name}

{sections}
"""
# After `:::` mkdocstrings puts the docstring of a class.
SECTION = """{shown}

{suits}. {parameters}

```
{command}
```

::: {identifier}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      show_bases: false
      members: []

Code, from `{file}`:

```python
{code}```
"""
DRAWING = """<div class="scrolled" markdown>
![The layers of {name}]({file})
</div>

*Above each layer: channels, and positions; below: what it is.
Input: one bag of {task}; drawn for ten classes.*"""
STANDING = """
## Where it stands
Set error in % with the loss `one-vs-rest`, beside no skill: mean ± standard deviation of five seeds
after some 2,000 steps (8,000 on synthetic bags, 40 epochs on birds). ✓: it may be the best of 21
losses; ≤: it is worse than the best by at most so many points. There is no ✓ on a task on which
nothing is learnt ([all losses, tuned alike](../../reports/all-losses/index.html)).

{table}
"""


class Entry(NamedTuple):
    """A network, with the tasks that it is for."""

    maker: Any
    """The class or function that makes it, from inputs, number of classes and seed."""
    tasks: tuple[str, ...]
    """The tasks that list the network; () for a network that suits many tasks."""


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    return [{name: _path(name)} for name in entries()]


@cache
def entries() -> dict[str, list[Entry]]:
    """Return the built-in networks by name; tasks may have different networks of the same name.

    First come the networks of tasks, then the networks that see whole bags, then torchvision's.
    """
    of_tasks: dict[tuple[str, Any], list[str]] = {}
    for task in tasks().names():
        for name, maker in tasks().get(task).networks.items():
            of_tasks.setdefault((name, maker), []).append(task)
    found: dict[str, list[Entry]] = {}
    for (name, maker), suitable in of_tasks.items():
        found.setdefault(name, []).append(Entry(maker, tuple(suitable)))
    ordered = dict(sorted(found.items()))
    for name, maker in OF_BAGS.items():
        ordered[name] = [Entry(maker, ())]
    ordered[NETWORK_OF_IMAGES] = [Entry(partial(Backbone, "resnet18"), ())]
    return ordered


def files() -> dict[str, str | bytes]:
    """Return the pages with their drawings."""
    made: dict[str, str | bytes] = {}
    for name, several in entries().items():
        sections = []
        for number, entry in enumerate(several):
            drawing = f"{name}-{number}.png"
            if name not in FORMULAS:
                made[f"reference/networks/{drawing}"] = _drawn(entry)
            # A heading says which section is for which tasks.
            heading = "" if len(several) == 1 else f"## For {', '.join(entry.tasks)}\n\n"
            sections.append(heading + _section(name, entry, drawing))
        # `lengths` says how results change with the length of training.
        page = PAGE.format(name=name, sections="\n".join(sections))
        made[_path(name)] = page + _standing(name) + lengths.section(network=name)
    return made


def _drawn(entry: Entry) -> bytes:
    """Return the drawing of a network."""
    task = _example(entry)
    shape = SAMPLES[task]
    # The channels of an image and the features of a sequence come first, those of a set last.
    inputs = shape[-1] if tasks().get(task).bag_kind == "sets" else shape[0]
    network = entry.maker(inputs, CLASSES, SEED)
    return picture(network, torch.zeros(1, *shape))


def _example(entry: Entry) -> str:
    """Return the task whose bag a network is drawn with."""
    if entry.tasks:
        return entry.tasks[0]
    # Only torchvision's network is drawn without a task of its own, and it takes images.
    return "image-bags"


def _section(name: str, entry: Entry, drawing: str) -> str:
    """Return the section of one network on the page of its name."""
    # The class or function whose code is shown. Where `entry.maker` is a `partial`, it is inside.
    maker = getattr(entry.maker, "func", entry.maker)
    file = Path(inspect.getsourcefile(maker) or "").resolve().relative_to(REPOSITORY)
    module = file.with_suffix("").as_posix().replace("/", ".")
    shown = FORMULAS.get(name) or DRAWING.format(name=name, file=drawing, task=_example(entry))
    return SECTION.format(
        shown=shown,
        suits=_suits(name, entry, maker),
        parameters=_parameters(entry),
        command=_command(name, entry),
        identifier=f"{module}.{maker.__name__}",
        file=file,
        code=inspect.getsource(maker),
    )


def _suits(name: str, entry: Entry, maker: Any) -> str:
    """Return which tasks a network is for, as a sentence without its full stop."""
    if entry.tasks:
        return f"A network of {_listed(entry.tasks)}"
    if name == NETWORK_OF_IMAGES:
        return f"Suits tasks whose bags are images: `--network` {_listed(backbones())}"
    return f"Suits {suited(maker)}"


def _parameters(entry: Entry) -> str:
    """Return the parameters of a network with their defaults; "" without any."""
    parameters = network_parameters(entry.maker).values()
    if not parameters:
        return ""
    settings = [f"network.{parameter.name}={parameter.default}" for parameter in parameters]
    return f"Parameters: {_listed(settings)}. "


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _command(name: str, entry: Entry) -> str:
    """Return a command that trains a network."""
    task = _task_of_command(name, entry)
    table = " -p task.table=TABLE.csv" if _needs_table(task) else ""
    # A network with one logit for a whole bag cannot be trained by `exact`, which needs a softmax
    # at every position.
    loss = "exact" if "softmax" in loss_heads(entry.maker) else "one-vs-rest"
    network = "resnet18" if name == NETWORK_OF_IMAGES else name
    return f"milbench run --loss {loss} --task {task} --network {network}{table}"


def _task_of_command(name: str, entry: Entry) -> str:
    """Return a task that suits a network, if possible one that needs no table of the user."""
    for task in entry.tasks:
        if not _needs_table(task):
            return task
    if entry.tasks:
        return entry.tasks[0]
    # Networks with a formula see whole bags, and suit every task.
    if name in FORMULAS:
        return "extended-digits"
    return "image-bags"


def _needs_table(task: str) -> bool:
    return "table" in constructor_parameters(tasks().get(task))


def _standing(name: str) -> str:
    """Return the results of a network beside others; "" if no published comparison has it.

    The networks `conv` and `gru` are compared with each other elsewhere, so they get a link.
    """
    table = standing.table(standing.of_network(name))
    if table:
        return STANDING.format(table=table)
    if name in ("conv", "gru"):
        return (
            "\n`conv` beside `gru` on sounds: "
            "[five losses with both](../../results.md#does-the-network-matter).\n"
        )
    return ""


def _path(name: str) -> str:
    return f"reference/networks/{name}.md"
