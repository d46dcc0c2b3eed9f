// The charts, with plotly: the same order, colours and hatches as the static plots.

const ENDED = { color: "#DDDDDD" };
const UNKNOWN = {
  color: "white",
  pattern: { shape: "/", fgcolor: "#999999", bgcolor: "white", size: 6, solidity: 0.25 },
};
const NOT_LEARNED = {
  color: "white",
  pattern: { shape: "x", fgcolor: "#CC8888", bgcolor: "white", size: 6, solidity: 0.2 },
};
const MOST_NAMED = 4;
const LONGEST_NAMES = 50; // characters in a line above a plot
const HATCHES = ["", "/", ".", "x"];
const DASHES = ["solid", "dash", "dashdot", "dot"];
const SETTINGS = { displayModeBar: false, responsive: true };
const FONT = { family: "system-ui, Segoe UI, Roboto, Arial, sans-serif", size: 12, color: "#1d2430" };
const FIRST = "first ";
const ROW_HEIGHT = 16;

const clipped = (values) => values.map((value) => Math.min(1, Math.max(0, value)));
const plainName = (outcome) => (outcome.first ? outcome.name.slice(FIRST.length) : outcome.name);
const bars = (outcome) => ({
  color: outcome.colour,
  pattern: {
    shape: HATCHES[outcome.round % 4],
    fgcolor: "white",
    bgcolor: outcome.colour,
    size: 6,
    solidity: 0.25,
  },
});
const line = (outcome) => ({ color: outcome.colour, dash: DASHES[outcome.round % 4], width: 2 });

class Charts {
  constructor(book) {
    this.book = book;
    this.steps = [...Array(book.horizon).keys()];
    const numbers = [...book.outcomes.keys()];
    const of = (test) => numbers.filter((k) => test(book.outcomes[k]));
    this.partition = of((o) => o.partition);
    this.events = of((o) => o.event && !o.first);
    this.firsts = of((o) => o.first);
    this.components = of((o) => o.weight !== null);
    this.lines = book.outcomes.some((o) => o.event) ? this.events : numbers;
    this.tracksUnknown = book.arrays.unknown.some((byte) => byte > 0);
  }

  // one future; `step` is the recorded step whose sequel is drawn over it, or null
  future(id, pair, view, step, end) {
    const known = this.book.known(pair);
    if (known && this.book.withoutSteps) return this.endless(id, [pair], this.book.originalWeights);
    const ahead = step === null ? [] : this.steps.filter((h) => step + h < end);
    const [traces, layout] =
      view === "by"
        ? this.happenedBy(pair, step, ahead)
        : this.partition.length
          ? this.stack(pair, step, ahead)
          : this.curves(pair, step, ahead);
    const shown = view === "by" ? this.firsts : this.partition.length ? this.events : this.lines;
    const said = known
      ? [...this.tooLittle(pair), ...this.untold([pair], shown, view === "by")]
      : [this.note("never tried: unknown")];
    this.draw(id, known ? traces : this.blank(), { ...layout, annotations: said });
  }

  stack(pair, step, ahead) {
    const shares = this.partition.map((k) => clipped(this.book.expected(pair, k)));
    const unknown = this.book.unknown(pair);
    const rest = this.steps.map((h) => shares.reduce((left, share) => left - share[h], 1 - unknown[h]));
    const told = this.partition.map((k) => this.book.toldAt(pair, k));
    const traces = this.partition.map((k, i) =>
      this.bar(
        this.book.outcomes[k].name,
        shares[i].map((share, h) => (told[i][h] ? share : 0)),
        bars(this.book.outcomes[k]),
      ),
    );
    const untold = this.steps.map((h) => shares.reduce((sum, share, i) => sum + (told[i][h] ? 0 : share[h]), 0));
    if (untold.some((share) => share > 0)) {
      traces.push({ ...this.bar("not learned", untold, NOT_LEARNED), hovertemplate: "not learned<extra></extra>" });
    }
    traces.push(this.bar(this.tracksUnknown ? "terminated" : "terminated or unknown", clipped(rest), ENDED));
    if (unknown.some((share) => share > 0)) traces.push(this.bar("unknown", unknown, UNKNOWN));
    for (const k of this.events.filter((k) => !this.partition.includes(k))) traces.push(this.curve(pair, k));
    const marks = ahead.map((h) => {
      const i = this.partition.findIndex((k) => this.book.happened(step + h, k) > 0);
      const below = shares.slice(0, i).reduce((sum, share) => sum + share[h], 0);
      return {
        h,
        y: below + shares[i][h] / 2,
        outcome: this.book.outcomes[this.partition[i]],
        share: told[i][h] ? shares[i][h] : null,
      };
    });
    traces.push(...this.marks(marks));
    return [traces, this.layout("probability", { range: [0, 1], tickformat: ".0%" }, "stack")];
  }

  curves(pair, step, ahead) {
    const events = this.events.length > 0;
    const traces = this.lines.map((k) => this.curve(pair, k));
    if (!events) {
      for (const k of ahead.length ? this.lines : []) {
        traces.push({
          type: "scatter",
          mode: "markers",
          name: `actual: ${escaped(this.book.outcomes[k].name)}`,
          x: ahead,
          y: ahead.map((h) => this.book.happened(step + h, k)),
          marker: { color: this.book.outcomes[k].colour, size: 8, line: { color: "black", width: 1.5 } },
        });
      }
      return [traces, this.layout("expected outcome", {}, "overlay")];
    }
    const unknown = this.book.unknown(pair);
    if (unknown.some((share) => share > 0)) {
      traces.unshift({ ...this.bar("unknown", unknown, UNKNOWN), base: unknown.map((share) => 1 - share) });
    }
    const layout = this.layout("probability", { range: [-0.03, 1.03], tickformat: ".0%" }, "overlay");
    if (step === null) return [traces, layout];
    const names = this.lines.map((k) => escaped(this.book.outcomes[k].name));
    this.lines.forEach((k, row) => {
      const at = ahead.filter((h) => this.book.happened(step + h, k) > 0);
      traces.push({
        type: "scatter",
        mode: "markers",
        name: `actual: ${names[row]}`,
        x: at,
        y: at.map(() => row),
        yaxis: "y2",
        marker: {
          symbol: "square",
          size: 8,
          color: this.book.outcomes[k].colour,
          line: { color: "black", width: 1 },
        },
        hovertemplate: `step %{x}: ${names[row]}<extra>actually happened</extra>`,
      });
    });
    const height = 220 + ROW_HEIGHT * names.length + 20;
    const share = (ROW_HEIGHT * names.length) / (height - 46);
    layout.height = height;
    layout.margin.l = 40 + 6 * Math.max(12, ...names.map((name) => name.length));
    layout.yaxis.domain = [share + 20 / height, 1];
    layout.yaxis2 = {
      domain: [0, share],
      tickvals: [...names.keys()],
      ticktext: names,
      range: [names.length - 0.4, -0.6],
      fixedrange: true,
      zeroline: false,
      tickfont: { size: 11 },
      gridcolor: "#EEEEEE",
    };
    layout.xaxis.anchor = "y2";
    return [traces, layout];
  }

  happenedBy(pair, step, ahead) {
    const marks = [];
    const bands = [];
    const traces = this.firsts.map((k, i) => {
      let sum = 0;
      bands.push(...this.shade(pair, k, this.book.band(pair, i, this.firsts.length)));
      const trace = this.curve(
        pair,
        k,
        this.book.expected(pair, k).map((share) => (sum += share)),
        this.book.toldBy(pair, k),
      );
      const h = ahead.find((h) => this.book.happened(step + h, k) > 0);
      if (h !== undefined && trace.y[h] !== null) {
        marks.push({ h, y: trace.y[h], outcome: this.book.outcomes[k], share: trace.y[h] });
      }
      return trace;
    });
    traces.unshift(...bands);
    traces.push(...this.marks(marks));
    return [
      traces,
      this.layout("probability by this step", { range: [-0.03, 1.03], tickformat: ".0%" }, "overlay"),
    ];
  }

  // how far the fact is ahead of the foil by each step, by where that comes from
  contrast(id, fact, foil, weights) {
    const { book } = this;
    const reach = Math.min(book.arrays.reach[fact], book.arrays.reach[foil]);
    if (book.known(fact) && book.known(foil) && book.withoutSteps)
      return this.endless(id, [fact, foil], weights);
    const said = this.tooLittle(fact, foil);
    const reachOfLines = said.length ? 0 : reach;
    said.push(...this.untold([fact, foil], book.rewarded ? this.components : this.lines, book.rewarded));
    if (!book.known(fact) || !book.known(foil)) return this.nothing(id, "difference", "never tried: unknown");
    if (!book.rewarded) {
      const traces = this.lines.map((k) => {
        const foilValues = book.expected(foil, k);
        const foilTold = book.toldAt(foil, k);
        return this.curve(
          fact,
          k,
          book.expected(fact, k).map((v, h) => (h < reachOfLines && foilTold[h] ? v - foilValues[h] : null)),
        );
      });
      this.draw(id, traces, { ...this.layout("difference", { zeroline: true }, "overlay"), annotations: said });
      return;
    }
    const total = new Array(book.horizon).fill(0);
    const complete = total.map((_, h) => h < reachOfLines && book.toldReturn(fact) && book.toldReturn(foil));
    const traces = this.components.map((k) => {
      const other = book.expected(foil, k);
      const foilTold = book.toldBy(foil, k);
      const told = book.toldBy(fact, k).map((one, h) => one && foilTold[h]);
      let sum = 0;
      const gained = book.expected(fact, k).map((value, h) => {
        sum += book.discount ** h * weights[k] * (value - other[h]);
        total[h] += sum;
        complete[h] &&= told[h];
        return h < reach && told[h] ? sum : null;
      });
      return this.bar(book.outcomes[k].name, gained, bars(book.outcomes[k]), ".2f");
    });
    traces.push({
      type: "scatter",
      mode: "lines+markers",
      name: "total",
      x: this.steps,
      y: total.map((v, h) => (complete[h] ? v : null)),
      line: { color: "black", width: 1.5 },
      marker: { size: 4 },
      hovertemplate: "%{y:.2f}<extra>total</extra>",
    });
    const layout = this.layout(
      "return difference so far",
      { zeroline: true, zerolinecolor: "black" },
      "relative",
    );
    if (reach < book.horizon && !said.length)
      said.push(this.note(`unknown from step ${reach} on`, 0.98, "right"));
    this.draw(id, traces, { ...layout, annotations: said });
  }

  // what a method over an infinite horizon predicts of a pair, or of the difference of two
  endless(id, pairs, weights) {
    const { book } = this;
    const difference = (of) => pairs.map(of).reduce((fact, foil) => fact - foil);
    const annotations = this.tooLittle(...pairs);
    if (pairs.some((pair) => book.arrays.reach[pair] < book.horizon))
      return this.nothing(id, "", "unknown: leads to untried pairs");
    if (book.endless === "steps") {
      const rewards = pairs.map((pair) => {
        const terms = this.components.map((k) => book.expected(pair, k).map((v) => v * book.originalWeights[k]));
        return this.steps.map((h) => terms.reduce((sum, term) => sum + book.discount ** h * term[h], 0));
      });
      const heights = this.steps.map((h) => (book.learned_steps[h] ? difference((_, i) => rewards[i][h]) : null));
      const bars = this.bar("reward", heights, { color: this.steps.map((h) => (h < book.horizon - 1 ? "black" : "#888888")) }, ".2f");
      const layout = this.layout("discounted reward", { zeroline: true, zerolinecolor: "black" }, "relative");
      layout.xaxis.title.text = `steps ahead (grey: step ${book.horizon - 1} and all later ones)`;
      this.draw(id, [bars], { ...layout, annotations });
      return;
    }
    const shown = book.rewarded ? this.components : [...book.outcomes.keys()].filter((k) => !book.outcomes[k].first);
    const totals = shown.map((k) => (book.rewarded ? weights[k] : 1) * difference((pair) => book.count(pair, k)));
    const names = shown.map((k) => escaped(book.outcomes[k].name));
    const widest = Math.max("return".length, ...names.map((name) => name.length));
    const colours = shown.map((k) => book.outcomes[k].colour);
    if (book.rewarded) {
      names.push("<b>return</b>");
      colours.push("black");
      totals.push(totals.reduce((sum, total) => sum + total, 0));
    }
    const trace = {
      type: "bar",
      orientation: "h",
      y: names,
      x: totals,
      text: totals.map((total) => book.formats.worth(Math.abs(total) < 5e-3 ? 0 : total)),
      textposition: "outside",
      cliponaxis: false,
      marker: { color: colours },
      hovertemplate: "%{y}: %{x:.2f}<extra></extra>",
    };
    const layout = this.layout("", { autorange: "reversed" }, "relative");
    const title = book.rewarded ? "discounted reward, in total" : "discounted total";
    const ends = [Math.min(0, ...totals), Math.max(0, ...totals)];
    const room = 0.25 * (ends[1] - ends[0] || 1); // beside the bars, for their numbers
    layout.xaxis = {
      title: { text: title, standoff: 4 },
      range: [ends[0] < 0 ? ends[0] - room : 0, ends[1] + room],
      fixedrange: true,
      zeroline: true,
      zerolinecolor: "black",
    };
    layout.margin.l = 20 + 7 * widest;
    this.draw(id, [trace], { ...layout, annotations });
  }

  bar(name, y, marker, format = ".1%") {
    const hovertemplate = `%{y:${format}}<extra>${escaped(name)}</extra>`;
    return {
      type: "bar",
      name: escaped(name),
      x: this.steps,
      y,
      marker: { ...marker, line: { width: 0 } },
      hovertemplate,
    };
  }

  curve(pair, k, values = this.book.expected(pair, k), told = this.book.toldAt(pair, k)) {
    const outcome = this.book.outcomes[k];
    const format = outcome.event ? ".1%" : ".3g";
    const reach = this.book.sparse(pair) ? 0 : this.book.arrays.reach[pair];
    return {
      type: "scatter",
      mode: "lines+markers",
      name: escaped(plainName(outcome)),
      x: this.steps,
      y: values.map((value, h) => (h < reach && told[h] ? value : null)),
      line: line(outcome),
      marker: { size: 4 },
      hovertemplate: `%{y:${format}}<extra>${escaped(plainName(outcome))}</extra>`,
    };
  }

  // the area between the ends of a band, in the colour of the outcome
  shade(pair, k, band) {
    if (band === null) return [];
    const edge = { ...this.curve(pair, k), mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    const reach = this.book.arrays.reach[pair];
    const told = this.book.toldBy(pair, k);
    const [low, high] = band.map((end) => end.map((value, h) => (h < reach && told[h] ? value : null)));
    const fill = { fill: "tonexty", fillcolor: `${this.book.outcomes[k].colour}40` };
    return [
      { ...edge, name: "", y: low },
      { ...edge, name: "", y: high, ...fill },
    ];
  }

  marks(marks) {
    const places = {
      type: "scatter",
      mode: "markers",
      x: marks.map((m) => m.h),
      y: marks.map((m) => m.y),
      cliponaxis: false,
    };
    const halo = { ...places, name: "", marker: { size: 13, color: "white" }, hoverinfo: "skip" };
    const really = {
      ...places,
      name: "actually happened",
      marker: { size: 9, color: marks.map((m) => m.outcome.colour), line: { color: "black", width: 2 } },
      text: marks.map(
        (m) => `${escaped(plainName(m.outcome))}, ${m.share === null ? "not learned" : `expected ${this.book.formats.percent(m.share)}`}`,
      ),
      hovertemplate: "step %{x}: %{text}<extra>actually happened</extra>",
    };
    return [halo, really];
  }

  blank() {
    return [{ type: "scatter", mode: "markers", x: [], y: [] }];
  }

  // a chart of nothing, and why
  nothing(id, title, why) {
    this.draw(id, this.blank(), { ...this.layout(title, {}, "relative"), annotations: [this.note(why)] });
  }

  // the note that one of the pairs was tried too rarely, as a list; none where all were tried often enough
  tooLittle(...pairs) {
    if (!pairs.some((pair) => this.book.sparse(pair))) return [];
    const fewest = Math.min(...pairs.map((pair) => this.book.arrays.support[pair]));
    return [this.note(`not enough data: ${fewest} visit${fewest === 1 ? "" : "s"}`)];
  }

  // the note above the plot of what has no line because it was not learned, as a list; none where all was
  untold(pairs, columns, sums) {
    const told = (k) => pairs.map((pair) => (sums ? this.book.toldBy(pair, k) : this.book.toldAt(pair, k)));
    const missing = columns.filter((k) => !told(k).every((steps) => steps.some(Boolean)));
    if (!missing.length) return [];
    const names = missing.map((k) => escaped(plainName(this.book.outcomes[k])));
    const named = names.slice(0, MOST_NAMED);
    while (named.length > 1 && named.join(", ").length > LONGEST_NAMES) named.pop();
    const more = names.length > named.length ? ` and ${names.length - named.length} more` : "";
    const note = this.note(`not learned or too rare to tell:<br>${named.join(", ")}${more}`, 1, "right");
    return [{ ...note, y: 1, yanchor: "bottom", align: "right", borderwidth: 0, font: { size: 11 } }];
  }

  note(text, x = 0.5, xanchor = "center") {
    return {
      text,
      x,
      xanchor,
      y: 0.5,
      xref: "paper",
      yref: "paper",
      showarrow: false,
      bgcolor: "white",
      bordercolor: "black",
      borderpad: 4,
    };
  }

  layout(title, yaxis, barmode) {
    return {
      barmode,
      bargap: 0,
      font: FONT,
      showlegend: false,
      dragmode: false,
      hovermode: "closest",
      autosize: true,
      margin: { l: 58, r: 8, t: 8, b: 38 },
      paper_bgcolor: "white",
      plot_bgcolor: "white",
      xaxis: {
        title: { text: "steps ahead", standoff: 4 },
        range: [-0.5, this.book.horizon - 0.5],
        fixedrange: true,
        zeroline: false,
        showgrid: false,
      },
      yaxis: {
        title: { text: title, standoff: 6 },
        fixedrange: true,
        zeroline: false,
        gridcolor: "#EEEEEE",
        ...yaxis,
      },
    };
  }

  draw(id, traces, layout) {
    const chart = document.getElementById(id);
    chart.style.height = layout.height ? `${layout.height}px` : "";
    const above = (layout.annotations ?? []).some((note) => note.yanchor === "bottom");
    const margin = { ...layout.margin, t: above ? 42 : layout.margin.t };
    Plotly.react(chart, traces, { ...layout, margin }, SETTINGS);
  }

  key(list) {
    const entries = [];
    for (const outcome of this.book.outcomes) {
      const plain = plainName(outcome);
      if (!outcome.first || !this.book.outcomes.some((o) => o.name === plain))
        entries.push([plain, swatch(outcome)]);
    }
    if (this.partition.length)
      entries.push([
        this.tracksUnknown ? "terminated" : "terminated or unknown",
        swatch({ colour: ENDED.color, round: 0 }),
      ]);
    if (this.tracksUnknown) entries.push(["unknown", swatch({ colour: "#999999", round: 1 })]);
    if (this.book.rewarded) entries.push(["total", marker("total")]);
    if (this.book.episodes.length) entries.push(["actually happened", marker("happened")]);
    list.replaceChildren(...entries.map(([name, mark]) => element("li", {}, mark, name)));
  }
}

function swatch(outcome) {
  const colour = outcome.colour;
  const backgrounds = [
    colour,
    `repeating-linear-gradient(135deg, ${colour} 0 3px, white 3px 4.5px)`,
    `radial-gradient(white 22%, ${colour} 26%) 0 0 / 5px 5px`,
    `repeating-linear-gradient(45deg, ${colour} 0 3px, white 3px 4.5px)`,
  ];
  const mark = marker("");
  mark.style.background = backgrounds[outcome.round % 4];
  return mark;
}

function marker(kind) {
  return element("span", { className: `swatch ${kind}`, ariaHidden: "true" });
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
