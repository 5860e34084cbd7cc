// The timeline: charts of one rank on one time axis. A drag in one zooms all, a double click shows all again.
const data = JSON.parse(document.getElementById("data").textContent);
const gutter = 64, height = 120, fewPixels = 240;
const plainFont = "11px system-ui, sans-serif";

// ms from one tick to the next, where seconds, minutes or hours are whole.
const timeSteps = [...[-3, -2, -1, 0, 1, 2, 3].flatMap((n) => [1, 2, 5].map((m) => m * 10 ** n)).filter((ms) => ms <= 5e3),
  10e3, 15e3, 30e3, ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((min) => 60e3 * min), 2 * 86400e3, 7 * 86400e3];

const faded = (name, alpha) => colour(name).replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
const shown = (unit) => (u, v) => (v === null || v === undefined ? "–" : `${tick(v, 3)}${unit}`);

// Arrays of lines as a chart reads them: null breaks a line, undefined does not.
function read(line) {
  return [unpack(line.t), Array.from(unpack(line.v), (v) => (Number.isNaN(v) ? null : v))];
}

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

class TimeLine {
  constructor(place) {
    this.plots = [];
    this.ranks = this.select("Rank", data.ranks.map((rank) => `rank ${rank.rank}${rank.host ? ` on ${rank.host}` : ""}`));
    this.ranks.value = Math.max(0, data.ranks.findIndex((rank) => rank.rank === data.lead));
    this.devices = this.select("Device to show", []);
    const all = make("button", "", "Whole run");
    all.type = "button";
    all.addEventListener("click", () => this.show(this.rank.begin, this.rank.end));
    this.charts = make("div", "charts");
    this.notes = make("p", "dim small");
    place.append(make("div", "buttons screen-only", this.ranks, this.devices, all), this.charts, this.notes);
    new ResizeObserver(() => this.plots.forEach((plot) => plot.setSize({ width: this.width(), height: plot.height }))).observe(this.charts);
    document.addEventListener("theme", () => this.plots.forEach((plot) => plot.redraw(false, true)));
    this.choose();
  }

  select(label, names) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", label);
    select.replaceChildren(...names.map((name, i) => new Option(name, i)));
    select.hidden = names.length < 2;
    select.addEventListener("change", () => this.choose());
    return select;
  }

  width() { return Math.max(fewPixels, this.charts.clientWidth); }

  choose() {
    const rank = (this.rank = data.ranks[Number(this.ranks.value)]), before = this.devices.value;
    // Ranks of another host have other devices; the chosen number stays where there is one.
    this.devices.replaceChildren(...rank.devices.map((number) => new Option(`device ${number}`, number)));
    if (rank.devices.map(String).includes(before)) this.devices.value = before;
    this.devices.hidden = rank.devices.length < 2;
    this.plots.splice(0).forEach((plot) => plot.destroy());
    this.charts.replaceChildren();
    this.drawParts(rank);
    this.drawPace(rank);
    const line = (name) => rank.lines.find((each) => each.name === name);
    const ofDevice = (what) => line(`${what}:${this.devices.value}`);
    const dashed = { dash: [4, 4] };
    const nvml = data.device === "emulated" ? "computed as NVML does" : "NVML";
    this.drawLines("Utilisation, %", [[ofDevice("utilisation"), nvml, "host"], [ofDevice("sm"), "SM active (GPM)", "sync"]]);
    this.drawLines("Time of a step on the host, ms", [[line("step"), "a step", "sync"]]);
    this.drawLines("Finished batches when the training asks", [[line("ready"), "ready", "copy"], [line("capacity"), "capacity", "untold", dashed]]);
    this.drawLines("Device memory, GB", [[ofDevice("memory"), "memory", "host"]]);
    this.drawLines("Power, W", [[ofDevice("power"), "power", "input"]]);
    this.drawLines("CPUs in use", [[line("cpus"), "training", "host"], [line("budget"), "allowed", "untold", dashed],
      [line("machine"), "whole machine", "boundary"]]);
    const words = [`The first two charts are sums over bins of ${lengthOf(rank.bins.width)}; lines show every peak.`];
    if (rank.left_out_devices) words.push(`${rank.left_out_devices} further devices are left out.`);
    this.notes.textContent = words.join(" ");
    const root = document.documentElement.dataset;
    if (!root.drawn) { root.drawn = performance.now().toFixed(0); root.charts = this.plots.length; }
  }

  // Edges of bins as [begin, …, end], so that the last bin has a width.
  edges({ begin, width, count }) {
    return Array.from({ length: count + 1 }, (_, i) => begin + i * width);
  }

  drawParts(rank) {
    const stepped = uPlot.paths.stepped({ align: 1 });
    const shares = Object.entries(rank.bins.parts).map(([part, packed]) => [part, Array.from(unpack(packed), (v) => v / 655.35)]);
    // Each series reaches from 0 to the sum of its part and those before it; what is drawn last lies on top.
    const sums = [];
    for (const [, share] of shares) sums.push(share.map((v, i) => v + (sums.length ? sums[sums.length - 1][i] : 0)));
    const series = shares.map(([part, share]) => ({ label: partName(part), stroke: () => colour(part), fill: () => colour(part), width: 0,
      paths: stepped, points: { show: false }, value: (u, v, s, i) => shown(" %")(u, i === null ? null : share[Math.min(i, share.length - 1)]) }));
    const closed = sums.map((sum) => [...sum, sum[sum.length - 1]]);
    this.draw("Where the time went, %", series.reverse(), [this.edges(rank.bins), ...closed.reverse()], [0, 100]);
  }

  drawPace(rank) {
    const what = rank.bins.samples ? "samples/s" : "steps/s";
    const rate = Array.from(unpack(rank.bins.samples ?? rank.bins.steps), (n) => (1e3 * n) / rank.bins.width);
    const series = { label: what, stroke: () => colour("host"), fill: () => faded("host", 0.15), points: { show: false },
      paths: uPlot.paths.stepped({ align: 1 }), value: shown("") };
    this.draw(what, [series], [this.edges(rank.bins), [...rate, rate[rate.length - 1]]]);
  }

  // `lines`: [line, label, colour, more]; those that were not measured are left out.
  drawLines(title, lines) {
    const measured = lines.filter(([line]) => line);
    if (!measured.length) return;
    const series = measured.map(([, label, name, more = {}]) => ({ label, stroke: () => colour(name), width: 1.4,
      points: { show: false }, value: shown(""), spanGaps: false, ...more }));
    this.draw(title, series, uPlot.join(measured.map(([line]) => read(line))));
  }

  draw(title, series, columns, range = (u, low, high) => [0, high > 0 ? high * 1.08 : 1]) {
    const figure = make("figure", "chart", make("figcaption", "", title));
    this.charts.append(figure);
    const axis = { stroke: () => colour("dim"), font: plainFont, grid: { stroke: () => colour("line"), width: 1 } };
    const plot = new uPlot({
      width: this.width(), height, legend: { live: true },
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false }, bind: { dblclick: () => () => this.show(this.rank.begin, this.rank.end) },
        sync: { key: "time", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } },
      scales: { x: { time: false, min: this.rank.begin, max: this.rank.end }, y: { range } },
      axes: [{ ...axis, incrs: timeSteps, size: 24, space: 90, values: (u, splits, i, space, step) => splits.map((t) => momentOf(t, step)) },
        { ...axis, size: gutter, space: 26, values: (u, splits) => splits.map((v) => tick(v)) }],
      series: [{ value: (u, t) => (t === null ? "–" : momentOf(t, 1)) }, ...series],
      hooks: { setScale: [(u, key) => key === "x" && this.show(u.scales.x.min, u.scales.x.max)] },
    }, columns, figure);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", title);
    this.plots.push(plot);
  }

  // The same stretch in all charts.
  show(min, max) {
    if (this.moving || !this.rank) return;
    this.moving = true;
    this.plots.forEach((plot) => plot.setScale("x", { min, max }));
    this.moving = false;
  }
}

new TimeLine(document.getElementById("timeline"));
