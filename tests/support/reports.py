"""Reports of a small run."""

from tests.support import small_mdp
from tests.support.learning import batches
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import Predictor, concatenate
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.sources.episodes import Recorder
from tpd.store.run_descriptions import describe_outcomes
from tpd.store.saved_runs import SavedRun

HOSTILE = "</script><script>alert('&')</script>"


def small(
    action_names: tuple[str, ...] = (),
    event_name: str = "odd",
    name: str = "small",
    counting: type[ReplayedFHTD] | None = None,
) -> SavedRun:
    """A run in the small environment, explained exactly or by a method that counts transitions."""
    env = Environment("SmallMDP-v0", action_names=action_names)
    policy = small_mdp.policy()
    outcomes = OutcomeSet(
        [event(event_name, small_mdp.odd, 1.0), event("even", small_mdp.even, 0.0)],
        partition=True,
        accounts_for_reward=True,
    )
    predictor: Predictor = ExactSolution(env, policy, outcomes, horizon=5)
    if counting is not None:
        predictor = counting(env, policy, outcomes, horizon=5)
        predictor.update(concatenate(list(batches(policy, 5_000))))
    explainer = Explainer(predictor, policy, outcomes.legend)
    recording = Recorder(episodes=5, steps=10).record(env, policy, outcomes)
    return SavedRun(f"{name}, seed 0", explainer, env, recording, describe_outcomes(outcomes).make)
