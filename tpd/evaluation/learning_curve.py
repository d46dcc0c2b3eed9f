"""The learning curve: errors measured during training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tpd.core.types import State, Transitions
from tpd.evaluation.errors import Errors
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import whole_number

SHARES = ("pi_known", "foil_known", "disagreement")
"""The fields of `Errors` that are one number, not one for each outcome."""


class LearningCurve:
    """A callback on transitions that measures the errors at geometrically growing intervals."""

    def __init__(self, measure: Callable[[int], Errors], steps: int, points: int) -> None:
        self.measured: dict[int, Errors] = {}
        """Number of transitions seen -> errors."""
        self._measure = measure
        self._steps = steps
        self._seen = 0
        # the last point is measured by the final evaluation
        self._due = np.geomspace(max(1, steps / 1000), max(1, steps), points + 1)[:-1].round().tolist()

    def __call__(self, transitions: Transitions) -> None:
        self._seen += len(transitions)
        if self._due and self._due[0] <= self._seen < self._steps:
            self._due = [step for step in self._due if step > self._seen]
            self.measured[self._seen] = self._measure(self._seen)

    def state(self) -> State:
        """The points measured so far, and the steps of the next ones."""
        found = {
            f"{step}/{name}": np.asarray(value)
            for step, errors in self.measured.items()
            for name, value in vars(errors).items()
            if isinstance(value, float | np.ndarray)  # bands are judged only at the end
        }
        names = [errors.names for errors in self.measured.values()][:1]
        return {"seen": np.array(self._seen), "due": np.array(self._due), "names": np.array(names), **found}

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored = CheckedArrays(state)
        seen, due = stored.number("seen"), stored.like("due", np.zeros(0), rows=None)
        found = stored.take("names", (None, ...), "Uf")
        names = tuple(str(name) for row in found for name in row)
        kept: dict[int, dict[str, Any]] = {}
        for key in state:
            step, _, name = key.partition("/")
            if name:
                shape = () if name in SHARES else (len(names),)
                value = stored.take(key, shape, "f", finite=False)
                number = whole_number("a step", int(step), at_least=0, at_most=seen)
                kept.setdefault(number, {})[name] = value if value.ndim else float(value)
        self._seen, self._due = seen, due.tolist()
        self.measured = {step: Errors(names=names, **values) for step, values in kept.items()}
