"""Callbacks for `model.learn`: pass on its transitions, or train an explainer on them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_ext.raw_values import HiddenStates, RawValues
from tpd.core.observations import check_space
from tpd.core.types import (
    FittingLearner,
    Handlers,
    HasMetrics,
    Learner,
    RecurrentPolicy,
    Transitions,
)
from tpd.guards.settings import boolean, one_of, whole_number
from tpd.predictors.explainer import Explainer

if TYPE_CHECKING:  # mlflow takes seconds to import
    from tpd.tracking.runs import Run


class TransitionCallback(BaseCallback):
    """Passes every transition of `model.learn` to functions, about `batch_size` at a time.

    Transitions have the raw observations and rewards of the environment, and the actions that it received.
    With a `recurrent` policy, the hidden state is appended to the observations; pending transitions are
    passed on before the weights change.
    resets: every `model.learn` resets the environments, even if it continues a training.
    As in SB3, an episode that ends without `TimeLimit.truncated` in its info has terminated.
    """

    def __init__(
        self,
        functions: Handlers,
        *,
        info_keys: Sequence[str] = (),
        batch_size: int = 1000,
        recurrent: RecurrentPolicy | None = None,
        resets: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.functions = tuple(functions)
        self.info_keys = tuple(info_keys)
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self._carried, self.resets = recurrent, resets
        self._raw: RawValues | None = None

    def _on_training_start(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm | OffPolicyAlgorithm):
            name = type(self.model).__name__
            raise TypeError(f"{name} does not pass transitions to callbacks: explain it after training")
        env = self.training_env
        check_space(env.observation_space, "the training env")
        self.num_envs = env.num_envs
        self._not_truncated = np.zeros(self.num_envs, dtype=np.bool_)
        self.resumed = self.num_timesteps > 0 and not self.resets
        self._shown = self.num_timesteps
        self._pending: list[tuple[Any, ...]] = []
        if self._raw is not None:
            self._raw.release()
        self._raw = RawValues(env)
        self._observation = self._raw.observations(self.model._last_obs)
        # after an early stop, SB3 resumes with an outdated observation
        self._doubtful = self.resumed
        if self._carried is not None:
            self._hidden_states = HiddenStates(self._carried, self.num_envs, known=not self.resumed)

    def _on_step(self) -> bool:
        if self.num_timesteps - self._shown != self.num_envs:
            raise RuntimeError(
                f"{self.num_timesteps - self._shown} steps were taken since the last call: pass the "
                "callback to model.learn directly, not to a callback that calls it only at some steps"
            )
        self._shown = self.num_timesteps
        step = self._step()
        if not self._doubtful:
            self._pending.append(step)
        self._doubtful = False
        if len(self._pending) * self.num_envs >= self.batch_size:
            self._hand_over()
        return True

    def _step(self) -> tuple[Any, ...]:
        """The latest step of all environments: columns [env, ...] in the order that `_hand_over` reads."""
        assert self._raw is not None
        infos, truncated = self.locals["infos"], self._not_truncated
        ended = np.flatnonzero(self.locals["dones"]).tolist()
        if ended:
            truncated = truncated.copy()
            truncated[ended] = [bool(infos[env].get("TimeLimit.truncated", False)) for env in ended]
        observation, self._observation = self._observation, self._raw.observations(self.locals["new_obs"])
        return (
            observation,
            np.array(self.locals.get("clipped_actions", self.locals["actions"])),
            self._raw.next_observations(self._observation, ended, infos),
            self._raw.rewards(self.locals["rewards"]),
            np.array(self.locals["dones"], dtype=np.bool_),
            truncated,
            *(np.array([_entry(info, key) for info in infos]) for key in self.info_keys),
        )

    def _hand_over(self) -> None:
        if not self._pending:
            return
        columns = [np.concatenate(column) for column in zip(*self._pending, strict=True)]
        count, self._pending = len(self._pending), []
        observation, action, following, reward, done, truncated, *info = columns
        if isinstance(self.model.action_space, spaces.Discrete):
            action = action.astype(np.int64).reshape(len(done))
        batch = Transitions(
            observation=observation,
            action=action,
            next_observation=following,
            reward=reward,
            terminated=done & ~truncated,
            truncated=truncated,
            info=dict(zip(self.info_keys, info, strict=True)),
            stream=np.tile(np.arange(self.num_envs), count),
        )
        if self._carried is not None:
            batch = self._hidden_states.carry_all(batch, self.num_envs)
        if len(batch):
            for function in self.functions:
                function(batch)

    def _on_rollout_end(self) -> None:
        if self._carried is not None:
            self._hand_over()

    def _on_training_end(self) -> None:
        self._hand_over()
        assert self._raw is not None
        self._raw.release()


def _entry(info: Mapping[str, Any], key: str) -> Any:
    if key not in info:
        raise KeyError(f"an outcome reads info[{key!r}], but the environment's info has only {sorted(info)}")
    return info[key]


class ExplainerCallback(TransitionCallback):
    """Trains an explainer on the transitions of `model.learn`, during the training or after it.

    During training, a network makes few updates, so as not to slow down the training; with `fit_at_end` it is
    fitted to the transitions in memory at the end. Metrics of the learning, and the fraction of the training
    time that it takes, go to the run or, if there is none, to SB3's logger. The hidden states of a recurrent
    agent depend on its weights at the time, and `RecurrentPolicy.version` identifies these for the learner;
    after the training, hidden states are recomputed with the final weights.
    """

    def __init__(
        self,
        explainer: Explainer,
        *,
        when: str = "alongside",
        fit_at_end: bool = False,
        run: "Run | None" = None,
        info_keys: Sequence[str] | None = None,
        batch_size: int = 1000,
        verbose: int = 0,
    ) -> None:
        if not isinstance(explainer.predictor, Learner):
            raise TypeError(
                f"{type(explainer.predictor).__name__} does not learn from transitions: use a learner such "
                'as explainer_for(model, "explainer=network_alongside")'
            )
        if info_keys is None:
            info_keys = getattr(getattr(explainer.predictor, "outcomes", None), "info_keys", ())
        self.when = one_of("when", when, ("alongside", "after"))
        self.fit_at_end = boolean("fit_at_end", fit_at_end)
        self.explainer = explainer
        self.learner: Learner = explainer.predictor
        self.recurrent = explainer.policy if isinstance(explainer.policy, RecurrentPolicy) else None
        self.run = run
        self.seconds = 0.0
        self._kept: list[Transitions] = []
        self._news = False
        alongside = when == "alongside"
        super().__init__(
            [self._learn if alongside else self._kept.append],
            info_keys=info_keys,
            batch_size=batch_size,
            recurrent=self.recurrent if alongside else None,
            verbose=verbose,
        )

    def _learn(self, batch: Transitions) -> None:
        self.learner.update(batch)
        self._news = True

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._kept.clear()
        self.seconds, self._began = 0.0, time.perf_counter()

    def _on_step(self) -> bool:
        began = time.perf_counter()
        going_on = super()._on_step()
        self._spent_since(began)
        return going_on

    def _on_rollout_end(self) -> None:
        began = time.perf_counter()
        super()._on_rollout_end()
        self._spent_since(began)

    def _on_training_end(self) -> None:
        began = time.perf_counter()
        self.model.policy.set_training_mode(False)  # the last update left it on
        super()._on_training_end()
        for batch in self._recollected():
            self._learn(batch)
        if self.fit_at_end and isinstance(self.learner, FittingLearner):
            self.learner.fit(lambda updates: None)
            self._news = True
        self._spent_since(began)

    def _recollected(self) -> Iterator[Transitions]:
        """The stored transitions, freed as they are read, with the hidden states of the final weights."""
        hidden_states = None
        if self.recurrent is not None:
            hidden_states = HiddenStates(self.recurrent, self.num_envs, known=not self.resumed)
        while self._kept:
            batch = self._kept.pop(0)
            if hidden_states is not None:
                batch = hidden_states.carry_all(batch, self.num_envs)
            if len(batch):
                yield batch

    def _spent_since(self, began: float) -> None:
        now = time.perf_counter()
        self.seconds += now - began
        if not self._news:
            return
        self._news = False
        share = self.seconds / (now - self._began)
        figures = {"explainer/seconds": self.seconds, "explainer/share_of_training": share}
        if isinstance(self.learner, HasMetrics):
            figures |= self.learner.metrics()
        if self.run is not None:
            self.run.metrics(figures, self.num_timesteps)
        else:
            for name, value in figures.items():
                self.logger.record(name, value)
