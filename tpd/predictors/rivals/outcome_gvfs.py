"""User outcomes as general value functions (Lin, Lam, Fern 2021, embedded self-predictions, ICLR).

One GVF for each outcome, `G_k(s, a) = E[sum_t discount^t o_k,t]`. Single steps are not predicted. The second
stage of the method, which predicts the agent's value from the GVFs, is in `scripts/rival_explanations.py`.
"""

from tpd.predictors.rivals.discounted_totals import DiscountedTotals


class OutcomeGVFs(DiscountedTotals):
    """GVFs of all outcomes, as a table."""

    method = "a GVF"
