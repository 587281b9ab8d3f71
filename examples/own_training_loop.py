# %% [markdown]
# # The exact likelihood in one's own training loop
# Any network that gives logits by position, the background in the last channel, learns from label sets alone. Here a
# linear layer finds out which of its inputs is which class, from bags of six instances.

# %%
import torch

from milbench.likelihood import bag_log_prob_from_logits, instance_posterior

torch.manual_seed(0)
network = torch.nn.Linear(4, 3 + 1)  # four features; three classes and the background
optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
for _ in range(300):
    classes = torch.randint(
        4, (32, 6)
    )  # the class of every instance, which the loss never sees; 3 is background
    instances = torch.nn.functional.one_hot(classes, 4) + 0.3 * torch.randn(32, 6, 4)
    labels = torch.nn.functional.one_hot(classes, 4).any(dim=1)[
        :, :3
    ]  # (B, C): which classes occur in each bag
    logits = network(instances).transpose(1, 2)  # (B, C+1, K)
    loss = -bag_log_prob_from_logits(logits, labels).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% [markdown]
# What class is each instance of the last bags, given their label sets?

# %%
posterior = instance_posterior(logits.detach().log_softmax(dim=1), labels)
error = (posterior.argmax(dim=1) != classes).double().mean().item()
print(f"-log likelihood {loss.item():.3f}, instances named wrongly: {100 * error:.1f} %")
