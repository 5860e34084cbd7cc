// One rank's recording: what is embedded of it, and what a range of it sums up to. Times are ms.
class Rank {
  constructor(data) {
    Object.assign(this, { number: data.rank, host: data.host, begin: data.begin, window: data.window, end: data.end });
    this.stretches = data.stretches.map(([begin, end, why]) => ({ begin, end, why }));
    this.parts = Object.keys(data.bins.parts);
    const bins = data.bins;
    this.bins = { count: bins.count, begin: bins.begin, width: bins.width, steps: sumsOf(unpack(bins.steps)),
      samples: bins.samples && sumsOf(unpack(bins.samples)), gaps: unpack(bins.gaps), longest: unpack(bins.longest_gap),
      parts: Object.fromEntries(this.parts.map((p) => [p, sumsOf(unpack(bins.parts[p]), bins.width / 65535)])) };
    this.spans = Object.fromEntries(Object.entries(data.spans).map(([part, s]) => {
      const begin = unpack(s.begin), length = unpack(s.length);
      return [part, { begin, length, sums: sumsOf(length) }];
    }));
    this.steps = { number: unpack(data.steps.number), begin: unpack(data.steps.begin), length: unpack(data.steps.length) };
    this.lines = data.lines.map((line) => {
      const v = unpack(line.v);
      return { name: line.name, measured: line.measured, t: unpack(line.t), v: Array.from(v, (x) => (Number.isNaN(x) ? null : x)) };
    });
    this.marks = data.marks.map(([kind, begin, end, name]) => ({ kind, begin, end, name }));
    this.leftOutMarks = data.left_out_marks;
    Object.assign(this, { devices: data.devices.map(String), leftOutDevices: data.left_out_devices });
    this.lanes = data.lanes && lanesOf(data.lanes);
  }

  // The stretch kept in full in which [from, to] lies, if any.
  stretchOf(from, to) {
    return this.stretches.find((s) => s.begin <= Math.max(from, this.window) && Math.min(to, this.end) <= s.end);
  }

  // ms of a part in [from, to]: from its spans where all of them are kept, else from bins, those at the edges by share.
  part(name, from, to) {
    return this.stretchOf(from, to) ? spansWithin(this.spans[name], from, to) : this.summed(this.bins.parts[name], from, to);
  }

  summed(sums, from, to) {
    return this.until(sums, to) - this.until(sums, from);
  }

  until(sums, at) {
    const place = (at - this.bins.begin) / this.bins.width;
    if (place <= 0) return 0;
    const whole = Math.min(Math.floor(place), this.bins.count);
    return sums[whole] + (whole < this.bins.count ? (place - whole) * (sums[whole + 1] - sums[whole]) : 0);
  }

  // All that the table tells of a range. Gaps begin in the bins that begin in it.
  range(from, to) {
    from = Math.max(from, this.window);
    to = Math.min(to, this.end);
    const length = Math.max(0, to - from);
    const parts = Object.fromEntries(this.parts.map((p) => [p, this.part(p, from, to)]));
    const unseen = Math.max(0, length - Object.values(parts).reduce((a, b) => a + b, 0));
    const first = Math.max(0, Math.ceil((from - this.bins.begin) / this.bins.width - 1e-6));
    const last = Math.min(this.bins.count, Math.ceil((to - this.bins.begin) / this.bins.width));
    let gaps = 0, longest = 0;
    for (let i = first; i < last; i++) {
      gaps += this.bins.gaps[i];
      longest = Math.max(longest, this.bins.longest[i]);
    }
    return { from, to, length, parts, unseen, gaps, longest, steps: this.summed(this.bins.steps, from, to),
      samples: this.bins.samples && this.summed(this.bins.samples, from, to) };
  }

  // [from, to] in columns that are no narrower than what is known: edges, and by part the share of each.
  columns(from, to, most) {
    const begin = Math.max(from, this.window), end = Math.min(to, this.end);
    const exact = Boolean(this.stretchOf(from, to));
    let edges;
    if (exact || (end - begin) / this.bins.width > most) {
      edges = Array.from({ length: most + 1 }, (_, i) => begin + ((end - begin) * i) / most);
    } else {
      const first = Math.floor((begin - this.bins.begin) / this.bins.width);
      const last = Math.ceil((end - this.bins.begin) / this.bins.width - 1e-9);
      edges = Array.from({ length: Math.max(1, last - first) + 1 }, (_, i) => this.bins.begin + (first + i) * this.bins.width);
    }
    const count = edges.length - 1;
    const shares = {};
    for (const part of this.parts) {
      const at = edges.map((e) => (exact ? untilOf(this.spans[part], e) : this.until(this.bins.parts[part], e)));
      shares[part] = Array.from({ length: count }, (_, i) => (at[i + 1] - at[i]) / (edges[i + 1] - edges[i]));
    }
    const of = (counted) => counted && Array.from({ length: count }, (_, i) =>
      (1e3 * this.summed(counted, edges[i], edges[i + 1])) / (edges[i + 1] - edges[i]));
    const centres = Array.from({ length: count }, (_, i) => (edges[i] + edges[i + 1]) / 2);
    const known = centres.map((_, i) => this.parts.reduce((sum, part) => sum + shares[part][i], 0));
    return { edges, centres, shares, known, exact, steps: of(this.bins.steps), samples: of(this.bins.samples) };
  }

  line(name) {
    return this.lines.find((line) => line.name === name);
  }

  // How long steps took: all of the stretches kept in full, peaks elsewhere.
  stepLine() {
    const line = this.line("step");
    if (!line) return line;
    const points = Array.from(this.steps.begin, (begin, i) => [begin + this.steps.length[i], this.steps.length[i]]);
    for (let i = 0; i < line.t.length; i++) if (!this.stretchOf(line.t[i], line.t[i])) points.push([line.t[i], line.v[i]]);
    points.sort((a, b) => a[0] - b[0]);
    return { ...line, t: points.map(([t]) => t), v: points.map(([, v]) => v) };
  }

  stepAt(t) {
    const i = lastBefore(this.steps.begin, t);
    return i >= 0 && t <= this.steps.begin[i] + this.steps.length[i] ? this.steps.number[i] : null;
  }
}

// Sums of all elements before each place.
function sumsOf(values, unit = 1) {
  const sums = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i++) sums[i + 1] = sums[i] + values[i] * unit;
  return sums;
}

// The last place whose value is at most `t`; -1 if there is none.
function lastBefore(sorted, t) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= t) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// ms that disjoint spans cover before `t`.
function untilOf(spans, t) {
  const i = lastBefore(spans.begin, t);
  return i < 0 ? 0 : spans.sums[i] + Math.min(spans.length[i], t - spans.begin[i]);
}

function spansWithin(spans, from, to) {
  return Math.max(0, untilOf(spans, to) - untilOf(spans, from));
}

function lanesOf(data) {
  const lanes = { workers: data.workers, inTraining: data.in_training, leftOut: data.left_out_workers,
    total: data.batches, untimed: data.untimed, files: data.files };
  lanes.busy = { count: data.busy.count, share: unpack(data.busy.share) };
  for (const name of ["worker", "begin", "length", "read", "step", "batch", "blocked", "slowest", "sample", "file"]) {
    lanes[name] = unpack(data[name]);
  }
  lanes.longest = lanes.length.reduce((a, b) => Math.max(a, b), 0);
  return lanes;
}
