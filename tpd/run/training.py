"""When and from what the explainer learns: while the policy trains, afterwards, or from a dataset."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from joblib import cpu_count

from tpd.core.types import (
    DiscretePolicy,
    Handlers,
    MetricsCallback,
    Policy,
    Rng,
    Stage,
    Trainer,
    hidden_size,
    no_metrics,
)
from tpd.envs import Environment
from tpd.envs.dataset import DatasetDescription, require_writable
from tpd.guards.settings import boolean, whole_number
from tpd.guards.sizes import require_memory
from tpd.policies.stored import save_policy
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration, require_tables
from tpd.sources.parquet import count_rows, read_shard, remove_unfinished, shard_path, shard_paths
from tpd.sources.shards import (
    Shard,
    Work,
    also_written,
    can_merge,
    in_stages,
    learn_from_files,
    learn_in_processes,
    learn_in_turn,
)

COPY = 1000
"""Lower bound on the size of one environment copy, in bytes."""


class Training:
    """Feeds transitions to the learner: from the policy's own training, or collected afterwards.

    The settings of exploration are the fields of `Exploration`.

    steps: transitions to collect after the policy's training.
    alongside: also learn from the transitions of the policy's training.
    shards: the collected transitions come in this many shards, each with its own random stream. Results
        depend on the number of shards, not on the number of `processes` (None: one per core) that collect
        them.
    save_dataset: a folder to write the collected transitions to, for other tools and for `training=dataset`.
    """

    def __init__(
        self,
        *,
        steps: int,
        epsilon: float,
        num_envs: int,
        alongside: bool = False,
        least_tried: bool = False,
        restarts: float = 0.0,
        every: tuple[int, int] | None = None,
        cut_long: bool = False,
        shards: int = 1,
        processes: int | None = None,
        save_dataset: str | None = None,
    ) -> None:
        self.alongside = boolean("alongside", alongside)
        self.steps = whole_number("steps", steps, at_least=0)
        self.exploration = Exploration(epsilon, least_tried, restarts, every, cut_long)
        self.num_envs = whole_number("num_envs", num_envs, at_least=1)
        self.shards = whole_number("shards", shards, at_least=1)
        self.processes = _processes(processes, self.shards)
        if save_dataset is not None and (not isinstance(save_dataset, str) or not save_dataset):
            raise ValueError(f"save_dataset must be a folder, or null for none, got {save_dataset!r}")
        self.dataset = None if save_dataset is None else Path(save_dataset).expanduser()
        self.source = None if alongside else self.dataset
        """The file or folder with the transitions; None if they are not saved."""
        self._run = ""
        if alongside and self.steps == 0 and (least_tried or restarts):
            raise ValueError(
                "training.least_tried and training.restarts need training.steps of 1 or more: with 0, the "
                "explainer learns only from the policy's training, which has its own exploration"
            )
        if self.steps < self.shards and (self.shards > 1 or self.dataset):
            raise ValueError(f"every shard needs at least one step, got steps={steps} and shards={shards}")

    def check(self, env: Environment, info_keys: Sequence[str], run: str = "") -> None:
        """Refuse settings that the environment does not support, before any work is done.

        run: the fingerprint of the run; a dataset written by a run with the same fingerprint may be
            overwritten.
        """
        if self.steps and not env.playable:
            raise ValueError(f"{env.id} cannot be stepped: learn with training=dataset")
        if env.tabular and self.steps:
            require_tables(env)
        if self.exploration.least_tried and not env.tabular:
            raise ValueError(
                f"{env.id} has no discrete states whose visits can be counted: least_tried must be false"
            )
        if self.exploration.restarts and not env.restarts(info_keys):
            raise ValueError(f"{env.id} cannot be restarted in a chosen state: restarts must be 0")
        copies, instead = f"{self.num_envs} copies of {env.id},", "use a smaller training.num_envs"
        require_memory(copies, (self.num_envs, COPY), "uint8", instead)
        if self.dataset is not None:
            require_writable(self.dataset, run)
        self._run = run

    def transitions(self, trainer: Trainer) -> int:
        """Number of transitions that the learner will see."""
        return self.steps + (trainer.steps if self.alongside else 0)

    def stages(
        self,
        env: Environment,
        trainer: Trainer,
        rng: Rng,
        *,
        learning: Handlers,
        watching: Handlers = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
    ) -> list[Stage]:
        """Train the policy, then learn from the shards, in resumable stages.

        `watching` handlers see only the policy's training, `learning` ones what the explainer learns from.
        """
        shown = [*watching, *learning] if self.alongside else watching
        stages: list[Stage] = [
            partial(trainer.train, shown, info_keys, on_metrics, number) for number in range(trainer.stages)
        ]
        if self.steps and (learning or self.dataset):
            stages += self._learning_stages(env, trainer.policy, rng, learning, info_keys)
        return stages

    def _learning_stages(
        self, env: Environment, policy: Policy, rng: Rng, learning: Handlers, info_keys: Sequence[str]
    ) -> list[Stage]:
        """Collect shards, here or in workers, learn from them, and write the dataset if asked to."""
        description = self._description(env, info_keys)
        shards = self._shards(env, policy, rng, info_keys)
        if self.dataset is not None:
            paths = (shard_path(self.dataset, number) for number in range(self.shards))
            shards = [partial(also_written, path, shard) for path, shard in zip(paths, shards, strict=True)]
        work: Work
        if self.processes == 1:
            work = partial(learn_in_turn, learning)
        elif can_merge(learning):
            work = partial(learn_in_processes, learning, self.processes, env)
        else:
            work = partial(learn_from_files, learning, self.processes, env, description)
        stages = in_stages(work, shards)
        if self.dataset is not None:
            stages.append(partial(_complete, self.dataset, description, env, policy))
        return stages

    def _shards(self, env: Environment, policy: Policy, rng: Rng, info_keys: Sequence[str]) -> list[Shard]:
        streams = [rng] if self.shards == 1 else rng.spawn(self.shards)
        most, left = divmod(self.steps, self.shards)
        return [
            partial(
                collect,
                env,
                policy,
                stream,
                steps=most + (number < left),
                exploration=self.exploration,
                num_envs=self.num_envs,
                info_keys=tuple(info_keys),
            )
            for number, stream in enumerate(streams)
        ]

    def _description(self, env: Environment, info_keys: Sequence[str]) -> DatasetDescription:
        return DatasetDescription(
            env=env.id,
            observation_space=env.observation_space,
            action_space=env.action_space,
            action_names=env.numbered_action_names or tuple(env.action_names),
            info_keys=tuple(info_keys),
            shards=self.shards,
            behaviour={"steps": self.steps, "num_envs": self.num_envs, **asdict(self.exploration)},
            run=self._run,
        )


class DatasetTraining(Training):
    """Learns from a dataset; collects no transitions.

    path: the folder of the dataset.
    processes: how many read shards in parallel if the learner can be merged (None: one per core).
    """

    def __init__(self, *, path: str | None, processes: int | None) -> None:
        if path is None:
            raise ValueError("set the folder of the dataset: training.path=…")
        folder = Path(path).expanduser()
        self.source, self._dataset = folder, DatasetDescription.read(folder)
        self._paths = shard_paths(folder, self._dataset)
        self.alongside, self.steps = False, sum(map(count_rows, self._paths))
        self.processes = _processes(processes, len(self._paths))
        if not self.steps:
            raise ValueError(f"{folder} has no transitions: choose another dataset (training.path=...)")

    def check(self, env: Environment, info_keys: Sequence[str], run: str = "") -> None:
        """Refuse a dataset with other spaces, or without the `info` keys that the outcomes read."""
        for name in ("observation_space", "action_space"):
            ours, theirs = getattr(env, name), getattr(self._dataset, name)
            if ours != theirs:
                raise ValueError(
                    f"the {name} of {env.id} is {ours}, but the {name} of the dataset is {theirs}: use the "
                    "environment that it was collected in"
                )
        self._dataset.check_info(info_keys)

    def _learning_stages(
        self, env: Environment, policy: Policy, rng: Rng, learning: Handlers, info_keys: Sequence[str]
    ) -> list[Stage]:
        """Read the shards and learn from them."""
        hidden = hidden_size(policy)
        shards: list[Shard] = [partial(read_shard, path, self._dataset, hidden) for path in self._paths]
        work: Work = partial(learn_in_turn, learning)
        if self.processes > 1 and can_merge(learning):
            work = partial(learn_in_processes, learning, self.processes, env)
        return in_stages(work, shards)


def _complete(folder: Path, description: DatasetDescription, env: Environment, policy: Policy) -> None:
    """Write the description of a dataset, which marks it as complete."""
    remove_unfinished(folder)
    if env.tabular and isinstance(policy, DiscretePolicy):
        save_policy(policy, env, folder)
    description.write(folder)


def _processes(wanted: int | None, shards: int) -> int:
    """Number of processes for this many shards."""
    return min(shards, int(cpu_count()) if wanted is None else whole_number("processes", wanted, at_least=1))
