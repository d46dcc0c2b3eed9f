// The page itself: what is looked at, and what happens when a reader touches something.

const $ = (id) => document.getElementById(id);
const PLAY_MILLISECONDS = 60000; // a whole episode
const STEP_MILLISECONDS = [100, 600]; // a step of it, at least and at most

class Page {
  constructor(book) {
    this.book = book;
    this.charts = new Charts(book);
    this.exploring = book.episodes.length === 0;
    this.episode = 0;
    this.step = 0;
    this.explored = book.fields.map(() => 0);
    this.wantedFoil = null;
    this.view = "each";
    this.simulating = true;
    this.weights = [...book.originalWeights];
    this.touched = null;
    this.solution = null;
    this.playing = null;
    this.prepare();
    this.show();
  }

  get entry() {
    if (!this.exploring) return this.book.entry(this.book.arrays.steps[this.recordedStep]);
    const sizes = this.book.fields.map((field) => field.values.length);
    return this.book.entry(this.explored.reduce((number, value, i) => number * sizes[i] + value, 0));
  }

  get recordedStep() {
    return this.book.episodeSteps(this.episode).begin + this.step;
  }

  // the foil that was asked for if it can be done here, else the default one
  foil({ index, state, taken }) {
    const others = this.book.validColumns(state).filter((column) => column !== taken);
    const wanted = [this.wantedFoil, this.book.arrays.foil[index], others[0]];
    return wanted.find((column) => others.includes(column)) ?? null;
  }

  prepare() {
    const { book } = this;
    $("about").textContent = `${book.environment}. ${$("about").textContent}`;
    if (book.left_out) {
      $("left-out").hidden = false;
      $("left-out").textContent =
        `Shown are ${book.episodes.length} of ${book.episodes.length + book.left_out} recorded episodes, including the worst and the best. With more, the page would be too large or take too long to write.`;
    }
    $("episode").replaceChildren(
      ...book.episodes.map((ending, i) =>
        element("option", { value: i }, `${book.numbers[i]} (${book.episodeSteps(i).count} steps, ${ending})`),
      ),
    );
    $("mode").hidden = !book.fields.length || !book.episodes.length;
    $("solving").hidden = !("model_pair" in book.arrays);
    this.charts.key($("key"));
    this.prepareFields();
    this.prepareRewards();
    this.prepareSteps("turning-points", this.book.turning_points ?? []);
    this.prepareSteps("rolled-out", this.book.rolled_out ?? []);
    this.listen();
  }

  prepareFields() {
    const made = this.book.fields.map((field, i) => {
      const shown = element("output", {});
      const input = element("input", {
        type: "range",
        min: 0,
        max: field.values.length - 1,
        value: 0,
        id: `field-${i}`,
        ariaLabel: field.name,
      });
      input.addEventListener("input", () => {
        this.explored[i] = Number(input.value);
        this.show();
      });
      return element("label", {}, field.name, input, shown);
    });
    $("fields").replaceChildren(...made);
  }

  prepareRewards() {
    const made = this.charts.components.map((k) => {
      const { name, weight } = this.book.outcomes[k];
      const reach = Math.max(2 * Math.abs(weight), 10);
      const slider = element("input", {
        type: "range",
        min: -reach,
        max: reach,
        step: reach / 200,
        ariaLabel: `reward of ${name}, slider`,
      });
      const field = element("input", { type: "number", step: "any", ariaLabel: `reward of ${name}` });
      slider.dataset.outcome = field.dataset.outcome = k;
      for (const input of [slider, field]) {
        input.addEventListener("input", () => {
          if (input.value !== "" && Number.isFinite(Number(input.value)))
            this.setReward(k, Number(input.value), input);
        });
      }
      return element(
        "div",
        { className: "reward" },
        element("span", {}, swatch(this.book.outcomes[k]), name),
        slider,
        field,
      );
    });
    $("rewards").replaceChildren(...made);
    this.showRewards(null);
  }

  // a list of steps to go to
  prepareSteps(id, points) {
    $(id).hidden = !points.length;
    $(id)
      .querySelector("ol")
      .replaceChildren(
        ...points.map(({ episode, step, text }) => {
          const link = element("button", { type: "button" }, text);
          link.addEventListener("click", () => {
            this.simulating = true;
            this.go(episode, step);
          });
          return element("li", {}, link);
        }),
      );
  }

  listen() {
    $("episode").addEventListener("change", () => this.go(Number($("episode").value), 0));
    $("step").addEventListener("input", () => this.go(this.episode, Number($("step").value)));
    $("play").addEventListener("click", () => this.togglePlaying());
    $("play-episodes").addEventListener("click", () => this.explore(false));
    $("explore").addEventListener("click", () => this.explore(true));
    this.on("foil", "change", () => (this.wantedFoil = Number($("foil").value)));
    this.on("view", "change", () => (this.view = $("view").value));
    this.on("other-answer", "click", () => (this.simulating = !this.simulating));
    this.on("reset", "click", () => {
      this.weights = [...this.book.originalWeights];
      this.touched = this.solution = null;
      this.showRewards(null);
    });
    $("solve").addEventListener("click", () => {
      this.solution = solved(this.book, this.weights);
      this.showSolution(this.entry);
    });
    document.addEventListener("keydown", (event) => this.key(event));
  }

  // changes something when an element is touched, and shows it
  on(id, event, change) {
    $(id).addEventListener(event, () => {
      change();
      this.show();
    });
  }

  key(event) {
    const upOrDown = event.key === "ArrowUp" || event.key === "ArrowDown";
    const busy =
      event.ctrlKey ||
      event.altKey ||
      event.metaKey ||
      event.target.matches("select, input[type=number]") ||
      (event.target.matches("input[type=range]") && !(event.target.id === "step" && (upOrDown || event.key === " "))) ||
      (event.target.matches("button, a") && event.key === " ");
    const does = {
      ArrowLeft: () => this.go(this.episode, this.step - 1),
      ArrowRight: () => this.go(this.episode, this.step + 1),
      ArrowUp: () => this.go(this.episode - 1, 0),
      ArrowDown: () => this.go(this.episode + 1, 0),
      " ": () => this.togglePlaying(),
    }[event.key];
    if (busy || this.exploring || !does) return;
    event.preventDefault();
    does();
  }

  go(episode, step) {
    this.exploring = false;
    this.episode = Math.min(Math.max(episode, 0), this.book.episodes.length - 1);
    this.step = Math.min(Math.max(step, 0), this.book.episodeSteps(this.episode).count - 1);
    this.show();
  }

  explore(exploring) {
    this.stopPlaying();
    if (exploring && !this.exploring) this.startExploringHere();
    this.exploring = exploring;
    this.show();
  }

  startExploringHere() {
    let number = this.entry.state;
    for (let i = this.book.fields.length - 1; i >= 0; i--) {
      const size = this.book.fields[i].values.length;
      this.explored[i] = number % size;
      number = Math.floor(number / size);
    }
  }

  togglePlaying() {
    if (this.playing !== null) return this.stopPlaying();
    const { count } = this.book.episodeSteps(this.episode);
    if (this.step === count - 1) this.go(this.episode, 0);
    this.playing = setInterval(() => {
      this.go(this.episode, this.step + 1);
      if (this.step >= this.book.episodeSteps(this.episode).count - 1) this.stopPlaying();
    }, Math.min(Math.max(PLAY_MILLISECONDS / count, STEP_MILLISECONDS[0]), STEP_MILLISECONDS[1]));
    $("play").textContent = "❚❚ Pause";
    $("play").ariaLabel = "Pause the episode";
  }

  stopPlaying() {
    clearInterval(this.playing);
    this.playing = null;
    $("play").textContent = "▶ Play";
    $("play").ariaLabel = "Play the episode";
  }

  setReward(k, reward, source) {
    this.weights[k] = reward;
    this.touched = k;
    this.solution = null;
    this.showRewards(source);
    this.show();
  }

  showRewards(source) {
    for (const input of $("rewards").querySelectorAll("input")) {
      if (input !== source) input.value = this.weights[input.dataset.outcome];
    }
  }

  show() {
    const entry = this.entry;
    const asked = !this.exploring && this.book.isRolledOut(entry);
    this.book.simulated = asked && this.simulating;
    const foil = this.foil(entry);
    const withoutSteps = this.book.withoutSteps;
    $("view-choice").hidden = !this.charts.firsts.length || withoutSteps;
    $("what-if").hidden = !this.book.rewarded || (withoutSteps && this.book.endless === "steps");
    $("key").hidden = withoutSteps;
    this.showControls();
    this.showObtained(entry, asked);
    this.showPicture(entry);
    this.showFoils(entry, foil);
    const changed = this.weights.some((weight, k) => weight !== this.book.originalWeights[k]);
    const sentences = this.book.simulated ? this.book.rolled_out_sentences : this.book.sentences;
    const said = sentences[entry.index][foil ?? entry.taken];
    $("sentence").textContent = changed ? `With the original rewards: ${said}` : said;
    this.showFutures(entry, foil);
    this.showReturns(entry);
    this.showOvertaking(entry, foil);
    this.showSolution(entry);
  }

  // how the numbers were obtained, and the other answer where there are both
  showObtained({ state }, asked) {
    const how = this.book.howObtained(state);
    $("obtained").classList.toggle("simulated", this.book.simulated);
    $("obtained-how").textContent = this.book.simulated ? `From the simulator, ${how}` : sentence(how).slice(0, -1);
    $("other-answer").hidden = !asked;
    $("other-answer").textContent = this.book.simulated ? "Show what was learned" : "Show the rollouts";
  }

  showControls() {
    $("episodes").hidden = $("keys").hidden = this.exploring;
    $("fields").hidden = !this.exploring;
    $("play-episodes").ariaPressed = String(!this.exploring);
    $("explore").ariaPressed = String(this.exploring);
    this.book.fields.forEach((field, i) => {
      const input = $(`field-${i}`),
        value = field.values[this.explored[i]];
      input.value = this.explored[i];
      input.ariaValueText = input.nextSibling.value =
        typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    });
    if (this.exploring) return;
    const { count } = this.book.episodeSteps(this.episode);
    $("episode").value = this.episode;
    $("step").max = count - 1;
    $("step").value = this.step;
    $("step-shown").value = `step ${this.step} of ${count - 1}`;
    const asked = (this.book.rolled_out ?? []).filter(({ episode }) => episode === this.episode);
    $("asked-steps").replaceChildren(...asked.map(({ step }) => element("option", { value: step })));
  }

  showPicture({ state }) {
    const { layers, arrays, pictures, states } = this.book;
    $("picture").replaceChildren(
      ...layers.map(([left, top, width, height], layer) => {
        const image = element("img", { alt: layer ? "" : states[state] });
        image.src = `data:image/webp;base64,${pictures[arrays.picture[state * layers.length + layer]]}`;
        if (layer) {
          const place = { left, top, width, height };
          for (const [side, share] of Object.entries(place)) image.style[side] = `${100 * share}%`;
        }
        return image;
      }),
    );
    $("state").textContent = states[state];
  }

  showFoils({ state, taken }, foil) {
    const others = this.book.validColumns(state).filter((column) => column !== taken);
    $("foil").replaceChildren(
      ...others.map((column) => {
        const never = this.book.known(this.book.pair(state, column)) ? "" : " (never tried: unknown)";
        return element("option", { value: column }, this.book.actionName(state, column) + never);
      }),
    );
    $("foil").disabled = !others.length;
    if (foil !== null) $("foil").value = foil;
  }

  showFutures({ state, taken }, foil) {
    const { book, charts } = this;
    const name = (column) => book.actionName(state, column);
    const step = this.exploring ? null : this.recordedStep;
    const { begin, count } = this.exploring ? { begin: 0, count: 0 } : book.episodeSteps(this.episode);
    const how = book.simulated ? "By rollouts" : "Expected";
    $("future-title").textContent = `${how} after ${name(taken)}, the agent's action`;
    charts.future("future", book.pair(state, taken), this.view, step, begin + count);
    for (const id of ["foil-title", "foil-future", "contrast-title", "contrast"])
      $(id).hidden = foil === null;
    if (foil === null) return;
    $("foil-title").textContent = `${how} after ${name(foil)} instead`;
    charts.future("foil-future", book.pair(state, foil), this.view, null, 0);
    $("contrast-title").textContent =
      `${book.rewarded ? "Return" : "Outcomes"} of ${name(taken)} minus ${name(foil)}`;
    charts.contrast("contrast", book.pair(state, taken), book.pair(state, foil), this.weights);
  }

  showReturns({ state, taken }) {
    const { book } = this;
    const weights = $("what-if").hidden ? book.originalWeights : this.weights;
    const changed = weights.some((weight, k) => weight !== book.originalWeights[k]);
    const own = "agent_value" in book.arrays;
    const best = book.favoured(state, taken, weights);
    const heads = [
      "action",
      ...(book.rewarded ? ["return"] : []),
      ...(changed ? ["with these rewards"] : []),
      ...(own ? ["agent's value"] : []),
      book.simulated ? "rollouts" : book.counted ? "visits" : "transitions",
      ...(book.withoutSteps ? [] : ["continues"]),
    ];
    $("returns").tHead.replaceChildren(
      element(
        "tr",
        {},
        ...heads.map((head, i) => element("th", { className: i ? "number" : "", scope: "col" }, head)),
      ),
    );
    const worth = (column) => book.worth(book.pair(state, column), weights);
    const order = book
      .validColumns(state)
      .sort((a, b) => Number.isNaN(worth(a)) - Number.isNaN(worth(b)) || worth(b) - worth(a) || 0);
    $("returns").tBodies[0].replaceChildren(
      ...order.map((column) => {
        const pair = book.pair(state, column),
          known = book.known(pair);
        const nothing = book.toldReturn(pair) ? "unknown" : "not learned";
        const number = (value) => (Number.isNaN(value) ? nothing : book.formats.worth(value));
        const notes = [
          ...(column === taken ? ["● agent"] : []),
          ...(column === best && column !== taken ? ["★ highest return"] : []),
        ];
        const cells = [
          [book.actionName(state, column), ...notes].join(" "),
          ...(book.rewarded
            ? [
                known
                  ? number(book.worth(pair, book.originalWeights)) + book.returnBand(pair)
                  : "never tried: unknown",
              ]
            : []),
          ...(changed ? [known ? number(worth(column)) : ""] : []),
          ...(own ? [book.formats.worth(book.arrays.agent_value[pair])] : []),
          !known
            ? "0"
            : book.arrays.support[pair] === Infinity
              ? book.simulated
                ? "1 (deterministic)"
                : "exact"
              : book.arrays.support[pair].toFixed(0),
          ...(book.withoutSteps
            ? []
            : [known ? (book.toldEnd(pair) ? book.formats.percent(book.arrays.running[pair]) : "not learned") : ""]),
        ];
        const row = element(
          "tr",
          { className: column === taken ? "taken" : "" },
          ...cells.map((cell, i) => element("td", { className: i ? "number" : "" }, cell)),
        );
        row.dataset.column = column;
        return row;
      }),
    );
    $("returns-note").textContent =
      `Return: expected ${book.withoutSteps ? "over an infinite horizon" : `within ${book.horizon} steps`}, ` +
      `later rewards discounted by ${book.discount}. ` +
      ("return_low" in book.arrays && !book.withoutSteps ? "In brackets: its 90 % band. " : "") +
      (book.withoutSteps ? "" : "Continues: probability that the episode continues after that.");
  }

  showOvertaking({ state, taken }, foil) {
    if (!this.book.rewarded || foil === null) {
      $("overtaking").textContent = "";
      return;
    }
    const gain = (k) =>
      Math.abs(
        this.weights[k] *
          (this.book.count(this.book.pair(state, taken), k) -
            this.book.count(this.book.pair(state, foil), k)),
      );
    const k = this.touched ?? this.charts.components.reduce((most, k) => (gain(k) > gain(most) ? k : most));
    $("overtaking").textContent = overtaking(this.book, state, taken, foil, k, this.weights);
  }

  showSolution({ state, taken }) {
    if (this.solution === null) {
      $("solved").textContent = "";
      return;
    }
    const number = this.book.arrays.state_number[state];
    const best = this.solution.choice(number);
    const name = (column) =>
      `${this.book.actionName(state, column)} (${this.book.formats.worth(this.solution.value(number, column))})`;
    const said =
      best === taken
        ? `the optimal policy takes ${name(best)} in this state, as the agent does`
        : `the optimal policy takes ${name(best)} in this state, and the agent's ${this.book.actionName(state, taken)} would be worth ${this.book.formats.worth(this.solution.value(number, taken))}`;
    $("solved").textContent = sentence(`with these rewards, ${said}`);
  }
}

async function start() {
  const [plotly, data] = await Promise.all([inflated("plotly"), inflated("data")]);
  document.head.append(element("script", { textContent: new TextDecoder().decode(plotly) }));
  document.querySelector("main").hidden = false;
  new Page(new Book(unpacked(data)));
  $("loading").hidden = true;
  document.body.dataset.ready = performance.now().toFixed(0);
}

start().catch((error) => {
  $("loading").textContent = `This page could not be shown: ${error.message}`;
  throw error;
});
