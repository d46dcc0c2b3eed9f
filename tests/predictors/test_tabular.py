"""Fixed-horizon TD: converges to the exact solution, in both forms, for any policy."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.learning import HORIZON, batches, exact
from tpd.core.efo import decompose
from tpd.core.seeding import generator
from tpd.core.types import Array, DiscretePolicy, FloatArray
from tpd.kernels.learning import fhtd_update
from tpd.predictors import tabular
from tpd.predictors.explainer import Explainer
from tpd.predictors.step_sizes import StepSize, constant, polynomial
from tpd.predictors.tabular import TabularFHTD
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration


def learner(
    policy: DiscretePolicy, form: str = "fhgvf", discount: float = 0.9, step: StepSize | None = None
) -> TabularFHTD:
    return TabularFHTD(
        small_mdp.environment(),
        policy,
        small_mdp.outcomes(),
        horizon=HORIZON,
        form=form,
        discount=discount,
        step_size=step or polynomial(0.8),
        dtype="float64",
    )


def errors_by_horizon(learned: TabularFHTD, policy: DiscretePolicy) -> FloatArray:
    """[horizon]: the largest error over states, actions and outcomes."""
    return np.asarray(np.abs(small_mdp.dense(learned.table()) - exact(policy)).max(axis=(0, 1, 3)))


@pytest.mark.no_cover
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("form", ["fhgvf", "efo"])
def test_converges_to_the_exact_solution_at_every_horizon(stochastic: bool, form: str) -> None:
    policy = small_mdp.policy(stochastic)
    learned = learner(policy, form)
    for batch in batches(policy, 2_000):
        learned.update(batch)
    early = errors_by_horizon(learned, policy)
    for batch in batches(policy, 2_000_000, seed=1):
        learned.update(batch)
    late = errors_by_horizon(learned, policy)
    assert (late < 0.02).all()
    assert (late < 0.2 * early).all()


@pytest.mark.parametrize(
    ("argument", "corrupt"),
    [
        ("continuation", np.ones_like),  # as if no episode ever ended
        ("next_states", lambda states: (states + 1) % small_mdp.NUM_STATES),
        ("next_probabilities", lambda p: np.roll(p, 1, axis=1)),  # another policy's actions
    ],
)
def test_a_corrupted_update_does_not_converge(
    argument: str, corrupt: Callable[[Array], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(inspect.signature(fhtd_update.py_func).parameters)

    def corrupted(*arguments: Any) -> None:
        changed = list(arguments)
        changed[names.index(argument)] = corrupt(changed[names.index(argument)])
        fhtd_update(*changed)

    monkeypatch.setattr(tabular, "fhtd_update", corrupted)
    policy = small_mdp.policy(stochastic=False)
    learned = learner(policy, "efo")
    for batch in batches(policy, 500_000):
        learned.update(batch)
    assert errors_by_horizon(learned, policy).max() > 0.1


@pytest.mark.parametrize("step", [constant(0.1), polynomial(0.7)])
@pytest.mark.parametrize("discount", [0.7, 1.0])
def test_both_forms_hold_the_same_estimate(step: StepSize, discount: float) -> None:
    policy = small_mdp.policy()
    values = learner(policy, "fhgvf", discount, step)
    outcomes = learner(policy, "efo", discount, step)
    for batch in batches(policy, 20_000):
        values.update(batch)
        outcomes.update(batch)
    np.testing.assert_allclose(small_mdp.dense(values.table()), small_mdp.dense(outcomes.table()), atol=1e-12)


@pytest.mark.parametrize("form", ["fhgvf", "efo"])
def test_the_kernel_is_the_equation(form: str) -> None:
    """One transition at a time in plain NumPy gives the same table as the compiled pass."""
    policy, outcomes, discount = small_mdp.policy(), small_mdp.outcomes(), 0.9
    learned = learner(policy, form, discount, polynomial(0.6))
    shape = (small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS, HORIZON, outcomes.width)
    q, visits = np.zeros(shape), np.zeros(shape[:2])
    carry, cumulative = (discount, 1.0) if form == "fhgvf" else (1.0, 0.0)
    for batch in batches(policy, 2_000):
        learned.update(batch)
        o, c = outcomes.observe(batch)
        for t in range(len(batch)):
            s, a, s_next = batch.observation[t], batch.action[t], batch.next_observation[t]
            v_next = policy.probabilities(np.array([s_next]))[0] @ q[s_next].reshape(shape[1], -1)
            target = cumulative * o[t] + carry * c[t] * v_next.reshape(HORIZON, -1)[:-1]
            visits[s, a] += 1
            q[s, a] += visits[s, a] ** -0.6 * (np.vstack([o[t], target]) - q[s, a])
    expected = q if form == "efo" else decompose(q, discount, axis=2)
    np.testing.assert_allclose(small_mdp.dense(learned.table()), expected, atol=1e-6)


def test_first_occurrence_is_never_more_than_occurrence_and_sums_to_at_most_one() -> None:
    truth = exact(small_mdp.policy())
    odd, first = truth[..., 0], truth[..., 2]
    assert (first <= odd + 1e-12).all()
    assert (first.sum(axis=2) <= 1 + 1e-12).all()
    assert (odd.sum(axis=2) > 1).any()
    np.testing.assert_allclose(first[:, :, 0], odd[:, :, 0])


def test_unlearned_pairs_have_no_support() -> None:
    policy = small_mdp.policy(stochastic=False)
    learned = learner(policy)
    env = small_mdp.environment()
    for batch in collect(
        env, policy, generator(0, "test"), steps=500, exploration=Exploration(0.0), num_envs=10
    ):
        learned.update(batch)
    states = np.arange(small_mdp.NUM_STATES)
    taken = policy.action(states)
    assert (learned.support(states, taken) > 0).all()
    assert (learned.support(states, (taken + 1) % small_mdp.NUM_ACTIONS) == 0).all()


def test_inference_and_training_interleave() -> None:
    """Answers can be had at any time and do not disturb what is learned afterwards."""
    policy = small_mdp.policy()
    asked, left_alone = learner(policy), learner(policy)
    explainer = Explainer(asked, policy, small_mdp.outcomes().legend)
    answers = []
    for batch in batches(policy, 10_000):
        for part in (batch[:100], batch[100:]):
            asked.update(part)
            answers.append(explainer.explain(np.array([0])).expected)
        left_alone.update(batch)
    assert not np.array_equal(answers[0], answers[-1])
    assert np.array_equal(small_mdp.dense(asked.table()), small_mdp.dense(left_alone.table()))


def test_a_changed_policy_changes_the_targets() -> None:
    """The next action is the policy's own, so old transitions serve a second policy."""
    first, second = small_mdp.policy(stochastic=False), small_mdp.policy(stochastic=True)
    learned = learner(second, "efo")
    for batch in batches(first, 1_000_000):
        learned.update(batch)
    assert (errors_by_horizon(learned, second) < 0.03).all()
    assert (errors_by_horizon(learned, first)[1:] > 0.03).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "horizon must be 1 or more"),
        ({"horizon": "long"}, "horizon must be a whole number, got 'long'"),
        ({"form": "both"}, "form must be one of fhgvf, efo"),
        ({"discount": 0}, "discount must lie in"),
        ({"discount": 0.3, "horizon": 30}, "form=efo"),
        ({"dtype": "int8"}, "dtype"),
        ({"horizon": 10**11, "form": "efo"}, r"6 x 3 x 4 x 100000000000 .* GB.*explainer=replayed"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {
        "horizon": HORIZON,
        "form": "fhgvf",
        "discount": 1.0,
        "step_size": constant(0.1),
        "dtype": "float32",
    }
    with pytest.raises(ValueError, match=message):
        TabularFHTD(
            small_mdp.environment(),
            small_mdp.policy(),
            small_mdp.outcomes(),
            **(usual | settings),  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("exponent", [0.5, 1.1, -1])
def test_step_sizes_beyond_the_theorem_are_refused(exponent: float) -> None:
    with pytest.raises(ValueError, match="exponent"):
        polynomial(exponent)
