"""The pages of the networks: drawing or formula, what each suits, where it stands, docstring and code."""

import inspect
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
    "extended-digits": (1, 20, 20), "extended-mnist": (1, 56, 56), "mnist": (1, 28, 28), "cifar10": (3, 32, 32),
    "image-bags": (3, 64, 64), "svhn": (3, 64, 64),
    "handwritten-words": (7, 128), "mnist-bags": (10, 784), "feature-bags": (5, 16), "synthetic-bags": (10, 2),
    "sequence-bags": (32, 124), "sound-events": (32, 124), "soundscapes": (32, 624), "spoken-digits": (32, 124),
}  # fmt: skip
"""A bag of each task, of a size that it may have."""
INPUTS_FIRST = 32  # bags with so many features are sequences, whose features come first as the channels of images do
CLASSES = 10
FORMULAS = {
    "gated-attention": (
        r"$$z_c = u_c^\top \sum_k a_{ck} h_k + b_c, \qquad "
        r"a_{ck} = \operatorname{softmax}_k\bigl(w_c^\top (\tanh(V h_k) \odot \sigma(U h_k))\bigr)$$"
    ),
    "dsmil": (
        r"$$z_c = \tfrac{1}{2}\bigl(s_{c m_c} + u_c^\top \sum_k a_{ck} B h_k + b'_c\bigr), \qquad "
        r"s_{ck} = w_c^\top h_k + b_c, \quad m_c = \operatorname{argmax}_k s_{ck},$$"
        "\n\n"
        r"$$a_{ck} = \operatorname{softmax}_k\bigl(q_k^\top q_{m_c} / \sqrt{Q}\bigr), \qquad q_k = \tanh(A h_k)$$"
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
"""Of the networks that see the features h_k of all instances, after self-attention x_k.

Those that pool them have a logit z_c for each class, `context` one at each position.
"""
PAGE = """# {name}

{sections}
"""
SECTION = """{heading}{shown}

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

*Above each layer: channels, and positions; below: what it is. Input: one bag of {task}; drawn for ten classes.*"""
STANDING = """
## Where it stands
Set error in %, mean ± standard deviation of five seeds after some 2,000 steps (8,000 on synthetic
bags, 40 epochs on birds), by `one-vs-rest`, beside no skill; ✓: may be the best of 21 (nowhere,
if nothing is learnt), ≤: then worse than it by at most so many points
([all losses, tuned alike](../../reports/all-losses/index.html)).

{table}
"""


class Entry(NamedTuple):
    """A network: what makes it, and the tasks that name it; () where it suits every task of a kind."""

    maker: Any
    tasks: tuple[str, ...]


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    return [{name: _path(name)} for name in entries()]


@cache
def entries() -> dict[str, list[Entry]]:
    """Return the built-in networks by name: those of tasks, those that see whole bags, and torchvision's."""
    of_tasks: dict[tuple[str, Any], list[str]] = {}
    for task in tasks().names():
        for name, maker in tasks().get(task).networks.items():
            of_tasks.setdefault((name, maker), []).append(task)
    found: dict[str, list[Entry]] = {}
    for (name, maker), suitable in of_tasks.items():
        found.setdefault(name, []).append(Entry(maker, tuple(suitable)))
    ordered = dict(sorted(found.items()))
    return (
        ordered
        | {name: [Entry(maker, ())] for name, maker in OF_BAGS.items()}
        | {"torchvision": [Entry(partial(Backbone, "resnet18"), ())]}
    )


def files() -> dict[str, str | bytes]:
    """Return the pages with their drawings."""
    made: dict[str, str | bytes] = {}
    for name, several in entries().items():
        sections = []
        for number, entry in enumerate(several):
            drawing = f"{name}-{number}.png"
            if name not in FORMULAS:
                made[f"reference/networks/{drawing}"] = _drawn(entry)
            sections.append(_section(name, entry, drawing, alone=len(several) == 1))
        page = PAGE.format(name=name, sections="\n".join(sections))
        made[_path(name)] = page + _standing(name) + lengths.section(network=name)
    return made


def _drawn(entry: Entry) -> bytes:
    shape = SAMPLES[_example(entry)]
    images_or_frames = len(shape) == 3 or shape[0] == INPUTS_FIRST
    network = entry.maker(shape[0] if images_or_frames else shape[-1], CLASSES, 0)
    return picture(network, torch.zeros(1, *shape))


def _example(entry: Entry) -> str:
    return entry.tasks[0] if entry.tasks else "image-bags"


def _section(name: str, entry: Entry, drawing: str, *, alone: bool) -> str:
    maker = getattr(entry.maker, "func", entry.maker)
    file = Path(inspect.getsourcefile(maker) or "").resolve().relative_to(REPOSITORY)
    shown = FORMULAS.get(name) or DRAWING.format(name=name, file=drawing, task=_example(entry))
    suits = f"A network of {', '.join(f'`{task}`' for task in entry.tasks)}" if entry.tasks else (
        f"Suits tasks whose bags are images: `--network` {', '.join(f'`{one}`' for one in backbones())}"
        if name == "torchvision" else f"Suits {suited(maker)}"
    )  # fmt: skip
    found = network_parameters(entry.maker).values()
    parameters = (
        f"Parameters: {', '.join(f'`network.{p.name}={p.default}`' for p in found)}. "
        if found
        else ""
    )
    code = inspect.getsource(maker)
    return SECTION.format(
        heading="" if alone else f"## For {', '.join(entry.tasks)}\n\n", shown=shown, suits=suits, file=file,
        parameters=parameters, command=_command(name, entry), code=code,
        identifier=f"{file.with_suffix('').as_posix().replace('/', '.')}.{maker.__name__}",
    )  # fmt: skip


def _command(name: str, entry: Entry) -> str:
    known = entry.tasks or ("extended-digits" if name in FORMULAS else "image-bags",)
    task = next(
        (one for one in known if "table" not in constructor_parameters(tasks().get(one))), known[0]
    )
    table = " -p task.table=TABLE.csv" * ("table" in constructor_parameters(tasks().get(task)))
    loss = "exact" if "softmax" in loss_heads(entry.maker) else "one-vs-rest"
    network = "resnet18" if name == "torchvision" else name
    return f"milbench run --loss {loss} --task {task} --network {network}{table}"


def _standing(name: str) -> str:
    table = standing.table(standing.of_network(name))
    if table:
        return STANDING.format(table=table)
    if name in ("conv", "gru"):
        return "\n`conv` beside `gru` on sounds: [five losses with both](../../results.md#does-the-network-matter).\n"
    return ""


def _path(name: str) -> str:
    return f"reference/networks/{name}.md"
