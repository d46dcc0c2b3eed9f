"""Rivals with networks: the same quantities as their tables, by expected Sarsa."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.networks import ACTIONS, STATES, small_transitions
from tpd.core.types import FloatArray
from tpd.predictors.explainer import Explainer
from tpd.predictors.rivals.discounted_totals import DiscountedTotals
from tpd.predictors.rivals.networks.learner import RivalNetwork
from tpd.predictors.rivals.outcome_gvfs import OutcomeGVFs
from tpd.predictors.rivals.reward_decomposition import RewardDecomposition
from tpd.predictors.rivals.temporal_reward import TemporalReward
from tpd.store import explainers

HORIZON = 4
TABLES: dict[str, Any] = {
    "reward terms": RewardDecomposition,
    "outcomes": OutcomeGVFs,
    "reward by step": TemporalReward,
}


def rival(quantity: str, **settings: Any) -> RivalNetwork:
    usual: dict[str, Any] = {
        "horizon": HORIZON,
        "quantity": quantity,
        "hidden": [64],
        "learning_rate": 3e-3,
        "batch_size": 128,
        "target_update_rate": 0.05,
        "fit_updates": 600,
        "replay_size": 20_000,
        "seed": 0,
        "device": "cpu",
    }
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    return RivalNetwork(small_mdp.environment(), policy, outcomes, **(usual | settings))


def quantities(table: Any) -> FloatArray:
    """[pair, output]"""
    if isinstance(table, DiscountedTotals):
        found = table.totals(STATES, ACTIONS)[:, :-1]
        return found[:, table.tells[:-1]]
    bins: FloatArray = table.bins(STATES, ACTIONS)
    return bins


@pytest.mark.parametrize("quantity", TABLES)
def test_networks_learn_what_the_tables_solve(quantity: str, tmp_path: Path) -> None:
    env, seen = small_mdp.environment(), small_transitions(small_mdp.policy())
    table = TABLES[quantity](env, small_mdp.policy(), small_mdp.outcomes(), horizon=HORIZON)
    table.update(seen)
    learned, fresh = rival(quantity), rival(quantity)
    learned.update(seen)
    learned.fit()
    said, due = learned.solved().quantities(STATES, ACTIONS), quantities(table)
    assert np.sqrt(np.mean((said - due) ** 2)) < 0.08
    assert np.sqrt(np.mean((fresh.solved().quantities(STATES, ACTIONS) - due) ** 2)) > 0.3
    explainer = Explainer(learned, learned.policy, learned.outcomes.legend)
    one = explainer.explain(STATES, ACTIONS)
    np.testing.assert_array_equal(
        one.told.by, Explainer(table, table.policy, one.legend).explain(STATES, ACTIONS).told.by
    )
    explainers.save(explainer, env, tmp_path)
    again = explainers.load(tmp_path).explain(STATES, ACTIONS)
    np.testing.assert_array_equal(again.expected, one.expected)
    np.testing.assert_array_equal(again.told.returns, one.told.returns)


def test_learning_goes_on_where_it_was_put_down() -> None:
    seen = small_transitions(small_mdp.policy())
    whole, parts, other = (rival("outcomes", fit_updates=40) for _ in range(3))
    whole.update(seen)
    whole.fit()
    parts.update(seen)
    parts.fit(at_most=15)
    other.restore(parts.state())
    other.fit()
    np.testing.assert_array_equal(other.predict(STATES, ACTIONS), whole.predict(STATES, ACTIONS))
    assert (parts.predict(STATES, ACTIONS) != whole.predict(STATES, ACTIONS)).any()


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="quantity must be one of reward terms"):
        rival("values")
