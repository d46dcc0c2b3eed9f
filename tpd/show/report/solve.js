// The optimal policy of the known table under other rewards, by value iteration.

const CONVERGED = 1e-10;
const SAME = 1e-9;

function solved(book, weights) {
  const { model_pair, model_next, model_probability, model_ends, model_outcome, model_valid } = book.arrays;
  const [states, actions] = book.shapes.model_valid;
  const outcomes = book.outcomes.length;
  const immediate = new Float64Array(states * actions);
  const begin = new Int32Array(states * actions + 1);
  for (let t = 0; t < model_pair.length; t++) {
    let reward = 0;
    for (let k = 0; k < outcomes; k++) reward += (weights[k] ?? 0) * model_outcome[t * outcomes + k];
    immediate[model_pair[t]] += model_probability[t] * reward;
    begin[model_pair[t] + 1] = t + 1;
  }
  for (let pair = 1; pair < begin.length; pair++) begin[pair] = Math.max(begin[pair], begin[pair - 1]);
  const values = new Float64Array(states * actions),
    best = new Float64Array(states);
  const largest = immediate.reduce((most, reward) => Math.max(most, Math.abs(reward)), 1);
  for (let change = Infinity; change > CONVERGED * largest; ) {
    change = 0;
    for (let s = 0; s < states; s++) {
      let most = -Infinity;
      for (let pair = s * actions; pair < (s + 1) * actions; pair++) {
        let value = immediate[pair];
        for (let t = begin[pair]; t < begin[pair + 1]; t++) {
          if (!model_ends[t]) value += book.discount * model_probability[t] * best[model_next[t]];
        }
        values[pair] = value;
        if (model_valid[pair] && value > most) most = value;
      }
      change = Math.max(change, Math.abs(most - best[s]));
      best[s] = most;
    }
  }
  const choice = (s) => {
    const enough = best[s] - (SAME * Math.max(1, Math.abs(best[s]))) / (1 - book.discount);
    for (let a = 0; a < actions; a++)
      if (model_valid[s * actions + a] && values[s * actions + a] >= enough) return a;
    return NEVER;
  };
  return { choice, value: (s, a) => values[s * actions + a] };
}
