// Charts on one time axis. Each has `update(view)`; `view` is {from, to} in ms, the same object for all.
const leastKnown = 0.01;
const gutter = 64, rightGutter = 40;
const plainFont = "11px system-ui, sans-serif";

// ms from one tick to the next, where seconds, minutes or hours are whole.
const timeSteps = [...[-3, -2, -1, 0, 1, 2, 3].flatMap((n) => [1, 2, 5].map((m) => m * 10 ** n)).filter((ms) => ms <= 5e3),
  10e3, 15e3, 30e3, ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((min) => 60e3 * min), 2 * 86400e3, 7 * 86400e3];

function timeAxis() {
  return { incrs: timeSteps, stroke: () => colour("dim"), font: plainFont, size: 24, gap: 3, space: 90,
    grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line"), width: 1, size: 4 },
    values: (u, splits, axis, space, step) => splits.map((t) => momentOf(t, step)) };
}

function valueAxis(scale, side, format) {
  return { scale, side, stroke: () => colour("dim"), font: plainFont, size: side === 3 ? gutter : rightGutter, gap: 4, space: 26,
    grid: { show: side === 3, stroke: () => colour("line"), width: 1 }, ticks: { show: false },
    values: (u, splits) => splits.map((v) => format(v)) };
}

class Chart {
  constructor(stage, title, { series, data, scales = {}, axes, height = 120, hooks = {}, legend = true, right = false }) {
    this.stage = stage;
    this.element = document.createElement("figure");
    this.element.className = "chart";
    const caption = document.createElement("figcaption");
    caption.textContent = title;
    this.element.append(caption);
    stage.charts.append(this.element);
    this.plot = new uPlot({
      width: stage.width(), height, pxAlign: 1, legend: { show: legend, live: true },
      padding: [6, right ? 0 : rightGutter, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => null },
        sync: { key: "time", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } },
      scales: { x: { time: false, range: () => [stage.view.from, stage.view.to] }, ...scales },
      axes: [timeAxis(), ...axes],
      series: [{}, ...series],
      hooks: { ...hooks, setSelect: [(u) => stage.selected(u)] },
    }, data, this.element);
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", `${title}; the table of the range tells its figures`);
  }

  update() {
    this.plot.setScale("x", { min: this.stage.view.from, max: this.stage.view.to });
  }

  resize(width) {
    this.plot.setSize({ width, height: this.plot.height });
  }

  repaint() {
    this.plot.redraw(false, true);
  }

  remove() {
    this.plot.destroy();
    this.element.remove();
  }
}

const shown = (unit, digits = 3) => (u, v) => (v === null || v === undefined ? "–" : `${tick(v, digits)}${unit}`);
const fromZero = { range: (u, min, max) => [0, max > 0 ? max * 1.08 : 1] };
const percents = { range: [0, 100] };

function lineSeries(label, name, unit, more = {}) {
  return { label, stroke: (u) => faded(name, crowded(u) ? 0.4 : 1), width: 1.4, points: { show: false }, value: shown(unit), spanGaps: false, ...more };
}

// Lines with moments of their own, put on one axis: null breaks a line, undefined does not.
function joined(lines) {
  return lines.length ? uPlot.join(lines.map(({ t, v }) => [t, v])) : [[], []];
}

// What the device did as percent, beside what the sampler read.
class Utilisation extends Chart {
  constructor(stage, rank, words, sampled) {
    const busy = rank.parts.includes("compute");
    const label = (line) => (line.name.startsWith("sm:") ? "SM active (GPM)" : words.utilisation);
    // What is drawn last lies on top.
    const series = [
      ...sampled.map((line) => lineSeries(label(line), line.name.startsWith("sm:") ? "sync" : "host", " %")),
      ...(busy ? [lineSeries(words.busy, "compute", " %", { stroke: () => colour("compute"), fill: () => faded("compute", 0.25),
        paths: uPlot.paths.stepped({ align: 1 }) })] : []),
    ];
    super(stage, "Utilisation", { series, data: [[0], ...series.map(() => [null])], scales: { y: percents },
      axes: [valueAxis("y", 3, (v) => `${v} %`)], height: 150 });
    Object.assign(this, { rank, sampled, busy });
    this.update();
  }

  update() {
    if (!this.rank) return;
    const { from, to } = this.stage.view;
    const columns = this.rank.columns(from, to, this.stage.columns());
    const lines = [...this.sampled];
    if (this.busy) {
      // Of the time that is known; where nobody looked, nothing is.
      const v = columns.shares.compute.map((share, i) => (columns.known[i] < leastKnown ? null : (100 * share) / columns.known[i]));
      lines.push({ t: columns.edges, v: [...v, v[v.length - 1]] });
    }
    this.plot.setData(joined(lines));
  }
}

// Whether lines have so many points in view that they would cover what lies behind them.
function crowded(u) {
  const [first, last] = u.series[0].idxs ?? [0, 0];
  return last - first > u.bbox.width / devicePixelRatio;
}

function faded(name, alpha) {
  return colour(name).replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

// Samples a second, or steps where samples are not known.
class Pace extends Chart {
  constructor(stage, rank) {
    const what = rank.bins.samples ? "samples/s" : "steps/s";
    super(stage, what, { series: [lineSeries(what, "host", "", { paths: uPlot.paths.stepped({ align: 1 }), fill: () => faded("host", 0.15) })],
      data: [[0], [null]], scales: { y: fromZero }, axes: [valueAxis("y", 3, tick)], height: 100 });
    this.rank = rank;
    this.update();
  }

  update() {
    if (!this.rank) return;
    const { from, to } = this.stage.view;
    const columns = this.rank.columns(from, to, this.stage.columns() / 2);
    const v = columns.samples ?? columns.steps;
    this.plot.setData([columns.edges, [...v, v[v.length - 1]]]);
  }
}

// Lines that are drawn as they are kept. `lines`: [line, label, colour, unit, scale].
function lineChart(stage, title, lines, right = null) {
  const known = lines.filter(([line]) => line);
  if (!known.length) return null;
  const series = known.map(([, label, name, unit, scale = "y", more = {}]) => lineSeries(label, name, unit, { scale, ...more }));
  const format = (v) => tick(v);
  const second = right && known.some(([, , , , scale]) => scale === "right");
  return new Chart(stage, title, { series, data: joined(known.map(([line]) => line)), right: Boolean(second),
    scales: { y: fromZero, ...(second ? { right } : {}) }, height: 105,
    axes: [valueAxis("y", 3, format), ...(second ? [valueAxis("right", 1, format)] : [])] });
}
