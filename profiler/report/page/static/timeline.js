// The time line: one view for all charts, moved by mouse, keys and buttons.
const data = JSON.parse(document.getElementById("data").textContent);
const leastView = 0.05;

class Stage {
  constructor(place) {
    this.place = place;
    this.view = { from: 0, to: 1 };
    this.list = [];
    this.build();
    this.choose(this.lead());
    new ResizeObserver(() => this.resize()).observe(this.charts);
    document.addEventListener("theme", () => this.paint());
  }

  build() {
    const make = (tag, className, ...children) => {
      const element = document.createElement(tag);
      element.className = className;
      element.append(...children);
      return element;
    };
    const button = (words, label, act) => {
      const element = make("button", "", words);
      element.type = "button";
      element.title = label;
      element.setAttribute("aria-label", label);
      element.addEventListener("click", act);
      return element;
    };
    this.buttons = make("div", "buttons screen-only");
    if (data.ranks.length > 1) this.buttons.append(this.ranks());
    this.devices = this.deviceSelect();
    this.buttons.append(this.devices,
      button("◀", "Earlier (left arrow)", () => this.pan(-0.25)), button("▶", "Later (right arrow)", () => this.pan(0.25)),
      button("+", "Zoom in (+)", () => this.zoom(0.5)), button("−", "Zoom out (−)", () => this.zoom(2)),
      button("All", "The whole run (0)", () => this.reset()));
    this.jumps = make("span", "jumps");
    this.buttons.append(this.jumps, button("?", "Help (?)", () => this.help.showModal()));
    this.strip = new Strip(this);
    this.charts = make("div", "charts");
    this.charts.tabIndex = 0;
    this.charts.setAttribute("role", "group");
    this.charts.setAttribute("aria-label", "Time line. Arrows move, plus and minus zoom, 0 shows all, ? helps.");
    const beside = make("div", "range");
    this.range = new RangeTable(beside);
    this.notes = make("p", "dim small");
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    this.help = this.helpDialog(make, button);
    this.place.append(this.buttons, this.strip.element, make("div", "stage", this.charts, beside), this.notes, this.tip, this.help);
    this.charts.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.charts.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.charts.addEventListener("dblclick", () => this.reset());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  ranks() {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Rank");
    data.ranks.forEach((rank, i) => select.add(new Option(`rank ${rank.rank}${rank.host ? ` on ${rank.host}` : ""}`, i)));
    select.value = this.lead();
    select.addEventListener("change", () => this.choose(Number(select.value), this.view));
    return select;
  }

  // The place of the rank that the rest of the page tells of.
  lead() {
    return Math.max(0, data.ranks.findIndex((rank) => rank.rank === data.lead));
  }

  // Which of the devices' samples are shown: a recording does not say which rank computes on which.
  deviceSelect() {
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Device whose samples are shown");
    select.addEventListener("change", () => this.choose(data.ranks.findIndex((rank) => rank.rank === this.rank.number), this.view));
    return select;
  }

  // Ranks of another host have other devices; the chosen number stays where there is one.
  offerDevices() {
    const { devices } = this.rank, chosen = this.devices.value;
    this.devices.replaceChildren(...devices.map((number) => new Option(`samples of device ${number}`, number)));
    if (devices.includes(chosen)) this.devices.value = chosen;
    this.devices.hidden = devices.length < 2;
  }

  helpDialog(make, button) {
    const keys = [["← →", "earlier, later"], ["+ −", "zoom in, out"], ["0", "the whole run"], ["?", "this help"],
      ["drag in a chart", "zoom to the range; in the strip above, choose it"], ["Ctrl or ⌘ + wheel", "zoom where the pointer is"],
      ["Shift + wheel", "move"], ["double click", "the whole run"]];
    const list = make("dl", "facts", ...keys.flatMap(([key, what]) => [make("dt", "", key), make("dd", "", what)]));
    const dialog = make("dialog", "", make("h2", "", "Time line"), list);
    dialog.append(button("Close", "Close", () => dialog.close()));
    return dialog;
  }

  choose(index, view = null) {
    this.list.forEach((chart) => chart.remove());
    this.rank = new Rank(data.ranks[index]);
    const rank = this.rank;
    this.offerDevices();
    this.view = { from: rank.begin, to: rank.end };
    this.list = this.chartsOf(rank).filter(Boolean);
    this.jumps.replaceChildren(...this.rank.stretches.filter((s) => s.why !== "whole").map((s) => {
      const element = document.createElement("button");
      element.type = "button";
      element.textContent = { begin: "Begin", worst: "Worst stretch", end: "End" }[s.why];
      element.title = `${momentOf(s.begin, 1e3)} to ${momentOf(s.end, 1e3)}: kept span by span`;
      element.addEventListener("click", () => this.show(s.begin, s.end));
      return element;
    }));
    this.notes.textContent = this.leftOut();
    if (view) this.show(view.from, view.to);
    this.draw();
  }

  chartsOf(rank) {
    const emulated = data.device === "emulated", cpu = data.device === "cpu";
    const words = { busy: cpu ? "busy (the processor, by host stamps)" : emulated ? "busy (emulated device)" : "busy (the device's events)",
      utilisation: emulated ? "utilisation (computed as NVML's)" : "utilisation (NVML)" };
    const ofDevice = (what) => rank.line(`${what}:${this.devices.value}`);
    const memory = ofDevice("memory"), power = ofDevice("power");
    const sampled = ["utilisation", "sm"].map(ofDevice).filter(Boolean);
    return [
      rank.parts.includes("compute") || sampled.length ? new Utilisation(this, rank, words, sampled) : null,
      new Parts(this, rank),
      rank.marks.length ? new Marks(this, rank) : null,
      new Pace(this, rank),
      lineChart(this, "Time of a step by the host, ms", [[rank.stepLine(), "a step", "sync", " ms"]]),
      lineChart(this, "Finished batches when asked for one", [[rank.line("ready"), "ready", "copy", ""],
        [rank.line("capacity"), "room for", "untold", "", "y", { dash: [4, 4] }]]),
      rank.lanes ? new Lanes(this, rank) : null,
      lineChart(this, memory && power ? "Device memory, GB; power, W" : memory ? "Device memory, GB" : "Power, W",
        [[memory, "memory", "host", " GB"], [power, "power", "input", " W", memory ? "right" : "y"]], fromZero),
      lineChart(this, "CPUs in use", [[rank.line("cpus"), "training", "host", ""],
        [rank.line("budget"), "may use", "untold", "", "y", { dash: [4, 4] }],
        [rank.line("machine"), "whole machine", "boundary", ""]]),
    ];
  }

  leftOut() {
    const rank = this.rank, words = [];
    if (rank.stretches[0].why !== "whole") {
      const which = { begin: "the begin", worst: "where the device idled most", end: "the end" };
      const all = rank.stretches.map((s) => `${which[s.why]} (${momentOf(s.begin, 1e3)} to ${momentOf(s.end, 1e3)})`);
      words.push(`Kept span by span: ${all.join(", ")}. Elsewhere the page holds sums of bins of ${lengthOf(rank.bins.width)}.`);
    }
    if (rank.lanes && rank.lanes.begin.length < rank.lanes.total) {
      words.push(`Of ${rank.lanes.total.toLocaleString("en")} batches ${rank.lanes.begin.length.toLocaleString("en")} are kept: those of these stretches, ` +
        "and of the others those that held up the training or took longest.");
    }
    const thinned = rank.lines.filter((line) => line.v.length < line.measured);
    if (thinned.length) words.push("Lines keep their peaks, and not all of their points.");
    if (rank.lanes?.leftOut) words.push(`${rank.lanes.leftOut} further workers are not shown.`);
    if (rank.leftOutDevices) words.push(`Samples of ${rank.leftOutDevices} further ${rank.leftOutDevices === 1 ? "device" : "devices"} are not shown.`);
    if (rank.leftOutMarks) words.push(`${rank.leftOutMarks} shorter events are not shown.`);
    if (rank.lanes) words.push("In lanes: making (blue), of it reading (yellow, drawn first), and in red the training's wait for a batch while a later one lay finished.");
    if (rank.range(rank.window, rank.end).unseen > 5e-4 * (rank.end - rank.window)) words.push("Striped: steps that nobody looked at, to stay cheap.");
    return words.join(" ");
  }

  width() { return Math.max(240, this.charts.clientWidth); }
  columns() { return Math.max(60, Math.floor((this.width() - gutter) / 2)); }

  // Make [from, to] visible, as far as the run goes.
  show(from, to) {
    const { begin, end } = this.rank;
    const length = Math.min(Math.max(to - from, leastView), end - begin);
    const start = Math.min(Math.max(from, begin), end - length);
    this.view.from = start;
    this.view.to = start + length;
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  draw() {
    this.tip.hidden = true;
    this.list.forEach((chart) => chart.update());
    this.strip.draw();
    this.range.show(this.rank, this.view);
    const root = document.documentElement.dataset;
    if (!root.drawn) { root.drawn = performance.now().toFixed(0); root.charts = this.list.length; }
  }

  paint() {
    this.list.forEach((chart) => chart.repaint());
    this.strip.draw();
  }

  resize() {
    const width = this.width();
    if (width === this.last) return;
    this.last = width;
    this.list.forEach((chart) => chart.resize(width));
    this.show(this.view.from, this.view.to);
  }

  reset() { this.show(this.rank.begin, this.rank.end); }

  pan(share) {
    const by = share * (this.view.to - this.view.from);
    this.show(this.view.from + by, this.view.to + by);
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    this.show(at - (at - this.view.from) * factor, at + (this.view.to - at) * factor);
  }

  selected(u) {
    if (u.select.width < 3) return;
    const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.show(from, to);
  }

  wheel(event) {
    const over = this.list[0].plot.over.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      const share = Math.min(1, Math.max(0, (event.clientX - over.left) / over.width));
      this.zoom(Math.exp(Math.sign(event.deltaY) * 0.25), this.view.from + share * (this.view.to - this.view.from));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan(Math.sign(event.deltaX || event.deltaY) * 0.1);
    } else return;
    event.preventDefault();
  }

  key(event) {
    const typing = event.target.closest?.("input, select, textarea, dialog");
    // Elsewhere keys are the page's, a reader's, or those of a voice.
    const meant = this.place.contains(document.activeElement) || this.place.matches(":hover");
    if (typing || !meant || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.reset(), "?": () => this.help.showModal() };
    if (!moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
  }

  tell(lines, u) {
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    const over = u.over.getBoundingClientRect(), at = over.left + u.cursor.left;
    const right = at > window.innerWidth / 2;
    this.tip.style.left = right ? "auto" : `${at + 14}px`;
    this.tip.style.right = right ? `${document.documentElement.clientWidth - at + 14}px` : "auto";
    this.tip.style.top = `${over.top + Math.max(0, u.cursor.top) + 14}px`;
  }
}

const timelinePlace = document.getElementById("timeline");
timelinePlace.hidden = false;
document.getElementById("static-overview").hidden = true;
new Stage(timelinePlace);
