# %% [markdown]
# # In your own training loop
# Any network that gives logits by position, the background in the last channel, learns from label
# sets alone. Here a linear layer finds out which of its inputs is which class, from bags of six
# instances. milbench's runner is not needed.

# %%
import torch

from milbench.likelihood import bag_log_prob_from_logits, instance_posterior

torch.manual_seed(0)
# Four features; three classes and the background.
network = torch.nn.Linear(4, 3 + 1)
optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
for _ in range(300):
    # The class of every instance in 32 bags, which the loss never sees; 3 is background.
    classes = torch.randint(4, (32, 6))
    one_hot = torch.nn.functional.one_hot(classes, 4)
    instances = one_hot + 0.3 * torch.randn(32, 6, 4)
    # (bags, classes): which classes occur in each bag.
    labels = one_hot.any(dim=1)[:, :3]
    # (bags, classes and background, instances), as the likelihood expects logits.
    logits = network(instances).transpose(1, 2)
    loss = -bag_log_prob_from_logits(logits, labels).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"-log likelihood {loss.item():.3f}")

# %% [markdown]
# Which class is each instance of the last batch, given the label sets?

# %%
posterior = instance_posterior(logits.detach().log_softmax(dim=1), labels)
error = (posterior.argmax(dim=1) != classes).double().mean().item()
print(f"instances named wrongly: {100 * error:.1f} %")

# %% [markdown]
# Every loss of milbench is such a function: `milbench.load_loss("noisy-or", head="softmax")` takes
# the same logits and labels. [Use a loss elsewhere](../docs/training-loop.md) has Lightning,
# scikit-learn and more.
