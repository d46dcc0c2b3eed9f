// Numbers and sentences that change as the reader plays; those that do not come from Python.

// discounted counts have 7 digits: those that differ by less are the same
const SAME_COUNT = 1e-5;
const SAME_REWARD = 1e-6;

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const sentence = (text) => text[0].toUpperCase() + text.slice(1) + ".";
const short = (value) => String(Number(value.toPrecision(4)));
const price = (reward) => (reward < 0 ? `penalty of ${short(-reward)}` : `reward of ${short(reward)}`);
const percent = (share) =>
  share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

function worthInWords(value) {
  return Math.abs(value) >= 0.1 || value === 0 ? value.toFixed(2) : String(Number(value.toPrecision(2)));
}

// At which reward of an outcome the action that is behind overtakes the other, as `overtakes` in answers/sentences/overtakes.py says it.
function overtaking(book, state, fact, foil, k, weights) {
  const name = (column) => book.actionName(state, column);
  const outcome = book.outcomes[k].name;
  for (const column of [fact, foil]) {
    const pair = book.pair(state, column);
    if (!book.known(pair)) {
      return sentence(
        `${name(column)} was never tried here, so nothing is known of it, whatever ${outcome} is worth`,
      );
    }
    if (!book.toldReturn(pair)) {
      return sentence(`the return of ${name(column)} is not learned, so no reward of ${outcome} can be named`);
    }
    if (Number.isNaN(book.worth(pair, weights))) {
      return sentence(`${name(column)} leads to the unknown, so no reward of ${outcome} can be named`);
    }
  }
  const pairs = [book.pair(state, fact), book.pair(state, foil)];
  const [factWorth, foilWorth] = pairs.map((pair) => book.worth(pair, weights));
  const count = book.count(pairs[0], k) - book.count(pairs[1], k);
  const [ahead, behind] = factWorth >= foilWorth ? [fact, foil] : [foil, fact];
  const said = `with the rest of the policy unchanged, ${name(behind)} overtakes ${name(ahead)} at`;
  if (Math.abs(count) <= SAME_COUNT) return sentence(`${said} no reward of ${outcome}`);
  if (!book.signCertain(state, fact, foil, k)) {
    return sentence(
      `the data do not say at which reward of ${outcome} ${name(behind)} would overtake ${name(ahead)}, ` +
        `nor whether it would have to be larger or smaller than now`,
    );
  }
  const exact = weights[k] - (factWorth - foilWorth) / count;
  const at = Math.abs(exact) <= SAME_REWARD * Math.max(1, Math.abs(weights[k])) ? 0 : exact;
  const article = "aeiou".includes(outcome[0].toLowerCase()) ? "an" : "a";
  const beyond = at > weights[k] === at >= 0 ? "or more" : "or less";
  return sentence(`${said} ${article} ${outcome} ${price(at)} ${beyond} (now a ${price(weights[k])})`);
}
