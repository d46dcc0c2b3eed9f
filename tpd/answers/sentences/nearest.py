"""A sentence about the nearest state in which the agent would choose the foil."""

from typing import TYPE_CHECKING

from tpd.answers.sentences.formatting import listed

if TYPE_CHECKING:
    from tpd.answers.nearest import NearestState


def switch(nearest: "NearestState") -> str:
    """What would have to be different for the agent to choose the foil."""
    foil, looked_at = nearest.foil, nearest.looked_at
    if nearest.withheld:
        return f"No state is given in which the agent would choose {foil}: {nearest.withheld}."
    if nearest.observation is None:
        states = f"{looked_at} states of the environment" if nearest.fields else f"{looked_at} visited states"
        return f"The agent chooses {foil} in none of the {states}."
    changes = [f"{each.name} {each.there} instead of {each.here}" for each in nearest.changes]
    if nearest.fields:
        return f"With {listed(changes)}, all else equal, the agent would choose {foil}."
    most = f" ({listed(changes)})" if changes else ""
    return (
        f"The nearest of {looked_at} visited states where the agent chooses {foil} is {nearest.distance:.2g} "
        f"standard deviations away{most}."
    )
