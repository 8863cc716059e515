"""Reinforcement learning: a configuration is a sequence of decisions, searched with a Monte Carlo tree (PUCT).

A state is a prefix of a code: the values of the first parameters. A decision is the value of the next parameter. A
network gives each decision a prior probability and each state a value; it is trained towards 1 for the fastest known
time, 0 for failures, and the ratio of the times for other points. Before each measurement, simulations descend the tree
by the values and priors of decisions; the most visited decisions give the point to measure. After each measurement,
from the fourth on, the network is trained: its values on all times, where a prefix has the value of the best point
below it, and its priors on the visits of earlier searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from viaduct.search_space import Code, Point, Space
from viaduct.tuning.search.base import Searcher
from viaduct.tuning.search.network import Array, PolicyValueNetwork, softmax

RANDOM_START = 20  # random points before the first tree, at most a quarter of the budget
SIMULATIONS = 40  # before each measurement
EXPLORATION = 0.6  # weight of the prior in PUCT
NOISE = 0.25  # share of random noise in the priors of the first decision
RANDOM_SHARE = 0.1  # share of points that are drawn at random, in case the network is wrong
MIN_TIMES = 4  # measurements from which on the network is trained
STEPS = 6  # training steps on measured points after each measurement
BATCH = 48  # rows of a training step
RECENT = 400  # last decisions that the policy is trained on


@dataclass
class Node:
    """A state of the tree. Each list has an item for each possible decision; `choice` is a position in these lists."""

    actions: list[int]  # positions of the values of the next parameter
    priors: list[float]
    values: list[float]  # the network's values of the states after the decisions
    visits: list[int]  # numbers of simulations that took the decisions
    totals: list[float]  # sums of these simulations' values
    best_values: list[float]  # the largest of these simulations' values

    def rank(self, choice: int) -> tuple[int, float]:
        """Return the key by which the final decision is ranked: visits, then value."""
        return self.visits[choice], self.rate(choice)

    def rate(self, choice: int) -> float:
        """Return the value of a decision: halfway between its simulations' mean and best value, or the network's."""
        visits = self.visits[choice]
        return 0.5 * (self.totals[choice] / visits + self.best_values[choice]) if visits else self.values[choice]


class TreeSearcher(Searcher):
    """Chooses the parameters one after the other, by a tree search guided by a network."""

    def __init__(
        self, space: Space, seed: int, budget_measurements: int | None = None, neighbours: Sequence[Point] = ()
    ) -> None:
        super().__init__(space, seed, budget_measurements, neighbours)
        counts = [len(parameter.values) for parameter in space.parameters]
        self.offsets = [sum(counts[:i]) for i in range(len(counts))]
        self.counts, self.actions = counts, sum(counts)  # values of each parameter, and of all
        self.network = PolicyValueNetwork(self.actions + 2 * len(counts), self.actions, self.random)
        self.unasked: dict[Code, int] = {}  # number of points below a prefix that were not asked for
        for code in space.codes:
            for length in range(len(code) + 1):
                self.unasked[code[:length]] = self.unasked.get(code[:length], 0) + 1
        self.features: dict[Code, Array] = {}
        self.decisions: list[tuple[Code, Array]] = []  # prefix, share of visits of each action

    def on_asked(self, code: Code) -> None:
        for length in range(len(code) + 1):
            self.unasked[code[:length]] -= 1

    def propose(self) -> Code | None:
        start = self.find_start()
        if start is not None:
            return start
        needed = len(self.starts) + min(RANDOM_START, self.budget // 4)
        if len(self.asked) < needed or self.best is None or self.random.random() < RANDOM_SHARE:
            return self.draw_unasked()
        return self.search_tree() if self.unasked[()] else None

    def search_tree(self) -> Code:
        """Simulate, then return the point at the end of the most visited decisions."""
        tree: dict[Code, Node] = {}
        for _ in range(SIMULATIONS):
            self.simulate(tree)
        prefix: Code = ()
        while len(prefix) < len(self.counts):
            node = tree.get(prefix) or self.expand(tree, prefix)
            if sum(node.visits):
                shares = np.zeros(self.actions)
                columns = [self.offsets[len(prefix)] + action for action in node.actions]
                shares[columns] = np.array(node.visits) / sum(node.visits)  # what the policy is trained on
                self.decisions = [*self.decisions[-RECENT + 1 :], (prefix, shares)]
            choices = range(len(node.actions))
            prefix = (*prefix, node.actions[max(choices, key=node.rank)])
        return prefix

    def simulate(self, tree: dict[Code, Node]) -> None:
        """Descend the tree to a point, and add the network's value of this point to all decisions on the path."""
        prefix: Code = ()
        path: list[tuple[Node, int]] = []
        value = 0.0
        while len(prefix) < len(self.counts):
            node = tree.get(prefix) or self.expand(tree, prefix)
            choice = self.select(node)
            path.append((node, choice))
            value = node.values[choice]
            prefix = (*prefix, node.actions[choice])
        for node, choice in path:
            node.visits[choice] += 1
            node.totals[choice] += value
            node.best_values[choice] = max(node.best_values[choice], value)

    def select(self, node: Node) -> int:
        """Return the position of the decision with the highest upper bound."""
        scale = EXPLORATION * sqrt(sum(node.visits) + 1)
        bounds = [node.rate(i) + scale * node.priors[i] / (1 + visits) for i, visits in enumerate(node.visits)]
        return bounds.index(max(bounds))

    def expand(self, tree: dict[Code, Node], prefix: Code) -> Node:
        """Add a state with the decisions that lead to points not asked for."""
        depth = len(prefix)
        actions = [action for action in range(self.counts[depth]) if self.unasked.get((*prefix, action), 0)]
        logits, values = self.network.predict(self.encode_states([prefix, *((*prefix, action) for action in actions)]))
        offset = self.offsets[depth]
        priors = softmax(logits[0, [offset + action for action in actions]], np.ones(len(actions)))
        if depth == 0:
            priors = (1 - NOISE) * priors + NOISE * self.random.dirichlet(np.full(len(actions), 0.5))
        count, lowest = len(actions), -float("inf")
        tree[prefix] = Node(actions, priors.tolist(), values[1:].tolist(), [0] * count, [0.0] * count, [lowest] * count)
        return tree[prefix]

    def encode_states(self, prefixes: Sequence[Code]) -> Array:
        return np.array([self.encode_state(prefix) for prefix in prefixes])

    def encode_state(self, prefix: Code) -> Array:
        """Return features: which value each parameter has, its position from -1 to 1, and whether it is decided."""
        if prefix not in self.features:
            width = len(self.counts)
            x = np.zeros(self.actions + 2 * width)
            for i, action in enumerate(prefix):
                x[self.offsets[i] + action] = 1.0
                x[self.actions + i] = 2.0 * action / max(1, self.counts[i] - 1) - 1.0
                x[self.actions + width + i] = 1.0
            self.features[prefix] = x
        return self.features[prefix]

    def on_time(self, code: Code, microseconds: float | None) -> None:
        best = self.best
        if best is None or len(self.times) < MIN_TIMES:
            return
        rewards = {measured: 0.0 if time is None else best[1] / time for measured, time in self.times.items()}
        states = self.label_states(rewards)
        codes = list(rewards)
        for _ in range(STEPS):
            self.train_values([codes[i] for i in self.random.integers(len(codes), size=BATCH)], rewards)
        prefixes = list(states)
        self.train_values([prefixes[i] for i in self.random.integers(len(prefixes), size=BATCH)], states)
        self.train_policy()

    def label_states(self, rewards: dict[Code, float]) -> dict[Code, float]:
        """Return the best reward below every prefix with a measured point."""
        states: dict[Code, float] = {}
        for code, reward in rewards.items():
            for length in range(len(code)):
                states[code[:length]] = max(reward, states.get(code[:length], 0.0))
        return states

    def train_values(self, codes: list[Code], targets: dict[Code, float]) -> None:
        self.network.train_value(self.encode_states(codes), np.array([targets[code] for code in codes]))

    def train_policy(self) -> None:
        if not self.decisions:
            return
        chosen = [self.decisions[i] for i in self.random.integers(len(self.decisions), size=BATCH)]
        allowed = np.zeros((len(chosen), self.actions))
        for row, (prefix, _) in enumerate(chosen):
            offset = self.offsets[len(prefix)]
            allowed[row, offset : offset + self.counts[len(prefix)]] = 1.0
        self.network.train_policy(self.encode_states([p for p, _ in chosen]), np.stack([s for _, s in chosen]), allowed)
