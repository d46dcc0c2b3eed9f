// Numbers and sentences that change as the reader plays; those that do not come from Python.

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const sentence = (text) => text[0].toUpperCase() + text.slice(1) + ".";

// Numbers as text, by the rules of core/formats.py.
class Formats {
  constructor(rules) {
    this.rules = rules;
  }

  percent(share) {
    const rule = this.rules.percent.find(([is, bound]) => share < bound || (is === "<=" && share === bound));
    if (!rule) return String(share);
    return typeof rule[2] === "string" ? rule[2] : `${(100 * share).toFixed(rule[2])} %`;
  }

  worth(value) {
    const { decimals, digits, digits_below } = this.rules.worth;
    return value === 0 || Math.abs(value) >= digits_below ? value.toFixed(decimals) : this.significant(value, digits);
  }

  price(reward) {
    const size = this.significant(Math.abs(reward), this.rules.price.digits);
    return `${reward < 0 ? "penalty" : "reward"} of ${size}`;
  }

  significant(value, digits) {
    if (value === 0) return "0";
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const power = Number(exponent);
    if (power >= -4 && power < digits) return String(Number(value.toPrecision(digits)));
    return `${Number(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
}

// At which reward of an outcome the action that is behind overtakes the other, as `overtakes` in answers/sentences/overtakes.py says it.
function overtaking(book, state, fact, foil, k, weights) {
  const name = (column) => book.actionName(state, column);
  const outcome = book.outcomes[k].name;
  const unknown = `the reward of ${outcome} at which their order changes is unknown`;
  for (const column of [fact, foil]) {
    const pair = book.pair(state, column);
    if (!book.known(pair)) {
      return sentence(`${name(column)} was never tried in this state, so nothing is known about it, and ${unknown}`);
    }
    if (!book.toldReturn(pair)) {
      return sentence(`the return of ${name(column)} is not learned, so ${unknown}`);
    }
    if (Number.isNaN(book.worth(pair, weights))) {
      return sentence(`${name(column)} leads to untried state-action pairs, so ${unknown}`);
    }
  }
  const pairs = [book.pair(state, fact), book.pair(state, foil)];
  const [factWorth, foilWorth] = pairs.map((pair) => book.worth(pair, weights));
  const count = book.count(pairs[0], k) - book.count(pairs[1], k);
  const [ahead, behind] = factWorth >= foilWorth ? [fact, foil] : [foil, fact];
  const said = `with the rest of the policy unchanged, ${name(behind)}`;
  if (Math.abs(count) <= book.same.count) {
    return sentence(`${said} does not overtake ${name(ahead)} at any reward of ${outcome}`);
  }
  if (!book.signCertain(state, fact, foil, k)) {
    return sentence(
      `the data do not say at which reward of ${outcome} ${name(behind)} would overtake ${name(ahead)}, ` +
        `nor whether it would have to be larger or smaller than now`,
    );
  }
  const exact = weights[k] - (factWorth - foilWorth) / count;
  const at = Math.abs(exact) <= book.same.reward * Math.max(1, Math.abs(weights[k])) ? 0 : exact;
  const article = "aeiou".includes(outcome[0].toLowerCase()) ? "an" : "a";
  const beyond = at > weights[k] === at >= 0 ? "or more" : "or less";
  const price = `${article} ${outcome} ${book.formats.price(at)} ${beyond} (now a ${book.formats.price(weights[k])})`;
  return sentence(`${said} overtakes ${name(ahead)} at ${price}`);
}
