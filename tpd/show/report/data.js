// Reads the blocks of the page: see packing.py for how they are written.

const NEVER = -1;
const LEVELS = 65535;
const KINDS = { u1: Uint8Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

async function inflated(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function unpacked(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const metadata = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const arrays = {};
  for (const [name, place] of Object.entries(metadata.arrays)) {
    const count = place.shape.reduce((a, b) => a * b, 1);
    arrays[name] = new KINDS[place.kind](buffer, 4 + size + place.begin, count);
  }
  return {
    ...metadata,
    arrays,
    shapes: Object.fromEntries(Object.entries(metadata.arrays).map(([n, p]) => [n, p.shape])),
  };
}

class Book {
  constructor(metadata) {
    Object.assign(this, metadata);
    this.formats = new Formats(metadata.formats);
    this.columns = this.shapes.options[1];
    this.pairs = this.arrays.support.length;
    this.pictures = document.getElementById("pictures").textContent.split("\n").filter(Boolean);
    this.originalWeights = this.outcomes.map((outcome) => outcome.weight);
    this.simulated = false; // whether pairs are those that were rolled out
    this.rolledOutStates = new Map((this.rolled_out ?? []).map(({ state }, i) => [state, i]));
  }

  // whether the simulator was asked about this entry
  isRolledOut(entry) {
    return String(entry.index) in (this.rolled_out_sentences ?? {});
  }

  // how the numbers that are shown were obtained
  howObtained(state) {
    return this.simulated ? this.obtained[state] : this.learned;
  }

  actionName(state, column) {
    return this.actions[this.actions.length > 1 ? state : 0][column];
  }

  pair(state, column) {
    const { options, rolled_out_options } = this.arrays;
    return (this.simulated ? rolled_out_options : options)[state * this.columns + column];
  }

  validColumns(state) {
    return [...Array(this.columns).keys()].filter((column) => this.pair(state, column) !== NEVER);
  }

  known(pair) {
    return this.arrays.support[pair] > 0;
  }

  // [horizon]: whether what is expected of an outcome at each step was learned
  toldAt(pair, k) {
    return this.told("told_at", pair, k);
  }

  // [horizon]: the same of its sum up to each step
  toldBy(pair, k) {
    return this.told("told_by", pair, k);
  }

  told(name, pair, k) {
    const array = this.arrays[name];
    return Array.from(
      { length: this.horizon },
      (_, h) => !array || array[(k * this.horizon + h) * this.pairs + pair] > 0,
    );
  }

  toldReturn(pair) {
    return !this.arrays.told_return || this.arrays.told_return[pair] > 0;
  }

  toldEnd(pair) {
    return !this.arrays.told_end || this.arrays.told_end[pair] > 0;
  }

  // whether it was tried too rarely to say more than how unsure it is
  sparse(pair) {
    return this.counted && this.known(pair) && this.arrays.support[pair] < this.enough_visits;
  }

  // whether what is shown was predicted over an infinite horizon, not step by step
  get withoutSteps() {
    return this.endless !== null && !this.simulated;
  }

  // [horizon]: what is expected of an outcome
  expected(pair, k) {
    const { low, span } = this.expected_range;
    return this.curve(this.arrays.expected, this.outcomes.length, pair, k, low[k], span[k]);
  }

  // [horizon]: probability that by then the future is unknown
  unknown(pair) {
    return this.curve(this.arrays.unknown, 1, pair, 0, 0, 1);
  }

  // [low, high], each [horizon]: the band of the i-th first occurrence up to each step, or null
  band(pair, i, count) {
    const { band } = this.arrays;
    return band ? [i, count + i].map((k) => this.curve(band, 2 * count, pair, k, 0, 1)) : null;
  }

  curve(planes, kinds, pair, k, low, span) {
    const half = kinds * this.horizon * this.pairs;
    return Array.from({ length: this.horizon }, (_, h) => {
      const at = (k * this.horizon + h) * this.pairs + pair;
      return low + ((planes[at] + 256 * planes[half + at]) / LEVELS) * span;
    });
  }

  count(pair, k) {
    return this.arrays.counts[pair * this.outcomes.length + k];
  }

  // the expected return under these weights; NaN where the future is not known to its end
  worth(pair, weights) {
    if (!this.rewarded || this.arrays.reach[pair] < this.horizon || !this.toldReturn(pair)) return NaN;
    return weights.reduce(
      (sum, weight, k) => (weight === null ? sum : sum + weight * this.count(pair, k)),
      0,
    );
  }

  // whether the data leave no doubt after which of two actions an outcome counts for more
  signCertain(state, fact, foil, k) {
    const certain = this.simulated ? this.arrays.rolled_out_sign_certain : this.arrays.sign_certain;
    if (!certain) return true;
    const pairs = this.columns * this.columns;
    const place = this.simulated ? this.rolledOutStates.get(state) : state;
    return certain[(place * pairs + fact * this.columns + foil) * this.outcomes.length + k] > 0;
  }

  // the ends of the band of a return, in words; nothing where it has none
  returnBand(pair) {
    const { return_low: low, return_high: high } = this.arrays;
    if (!low || Number.isNaN(low[pair]) || !this.toldReturn(pair)) return "";
    return ` (${this.formats.worth(low[pair])} to ${this.formats.worth(high[pair])})`;
  }

  // whether the band of the difference of two returns excludes 0; of other rewards nobody knows
  settled(state, one, other, weights) {
    const { settled } = this.arrays;
    if (!settled) return true;
    const same = weights.every((weight, k) => weight === this.originalWeights[k]);
    return same && settled[(state * this.columns + one) * this.columns + other] > 0;
  }

  // the valid column of the largest return, if larger than that of the column taken
  favoured(state, taken, weights) {
    const own = this.worth(this.pair(state, taken), weights);
    let best = taken,
      most = own;
    for (const column of this.validColumns(state)) {
      const worth = this.worth(this.pair(state, column), weights);
      const size = Math.max(Math.abs(worth), Math.abs(own));
      if (worth > most && worth - own > this.tie * size + this.rounding) [best, most] = [column, worth];
    }
    return this.settled(state, best, taken, weights) ? best : taken;
  }

  episodeSteps(episode) {
    const begins = this.arrays.begins;
    const end = episode + 1 < begins.length ? begins[episode + 1] : this.arrays.steps.length;
    return { begin: begins[episode], count: end - begins[episode] };
  }

  entry(index) {
    return { index, state: this.arrays.entries[2 * index], taken: this.arrays.entries[2 * index + 1] };
  }

  happened(step, k) {
    return this.arrays.happened[step * this.outcomes.length + k];
  }
}
