// The parts of the time, stacked: span by span where all are kept and there is room, else column by column.
class Parts extends Chart {
  constructor(stage, rank) {
    const series = rank.parts.map((part) => ({ label: partName(part), stroke: () => colour(part), fill: () => colour(part),
      paths: () => null, points: { show: false }, value: shown(" %") }));
    super(stage, "Where the time went", { series, data: [[0], ...series.map(() => [null])], scales: { y: percents },
      axes: [valueAxis("y", 3, (v) => `${v} %`)], height: 160, legend: false,
      hooks: { draw: [(u) => this.paint?.(u)], setCursor: [(u) => this.hover?.(u)] } });
    this.rank = rank;
    this.update();
  }

  update() {
    if (!this.rank) return;
    const { from, to } = this.stage.view;
    this.columns = this.rank.columns(from, to, this.stage.columns());
    this.plot.setData([this.columns.centres, ...this.rank.parts.map((part) => this.columns.shares[part].map((s) => 100 * s))]);
  }

  spansInView() {
    if (!this.columns.exact) return Infinity;
    const { from, to } = this.stage.view;
    return Object.values(this.rank.spans).reduce((n, s) => n + lastBefore(s.begin, to) - lastBefore(s.begin, from), 0);
  }

  paint(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const x = (t) => u.valToPos(t, "x", true);
    const left = x(Math.max(this.rank.window, this.stage.view.from)), right = x(Math.min(this.rank.end, this.stage.view.to));
    ctx.fillStyle = stripes(ctx);
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    if (this.spansInView() < bbox.width / 2) this.paintSpans(u, x);
    else this.paintColumns(u, x);
    ctx.restore();
  }

  paintSpans(u, x) {
    const { from, to } = this.stage.view;
    for (const part of this.rank.parts) {
      const { begin, length } = this.rank.spans[part];
      u.ctx.fillStyle = colour(part);
      for (let i = Math.max(0, lastBefore(begin, from)); i < begin.length && begin[i] < to; i++) {
        const left = x(begin[i]);
        u.ctx.fillRect(left, u.bbox.top, Math.max(0.5, x(begin[i] + length[i]) - left), u.bbox.height);
      }
    }
  }

  paintColumns(u, x) {
    const { edges, shares } = this.columns;
    const base = new Float64Array(edges.length - 1);
    for (const part of this.rank.parts) {
      u.ctx.fillStyle = colour(part);
      for (let i = 0; i < base.length; i++) {
        const left = Math.floor(x(edges[i])), right = Math.floor(x(edges[i + 1])), share = shares[part][i];
        const bottom = u.bbox.top + u.bbox.height * (1 - base[i]);
        u.ctx.fillRect(left, bottom - u.bbox.height * share, right - left, u.bbox.height * share + 0.5);
        base[i] += share;
      }
    }
  }

  hover(u) {
    if (!u.over.matches(":hover")) return;
    const t = u.posToVal(u.cursor.left, "x");
    const step = this.rank.stepAt(t);
    const lines = [momentOf(t, (this.stage.view.to - this.stage.view.from) / 1e3)];
    if (step !== null) lines.push(`step ${step}`);
    if (this.columns.exact && this.spansInView() < this.plot.bbox.width / 2) lines.push(...this.spanAt(t));
    else lines.push(...this.columnAt(t));
    this.stage.tell(lines, u);
  }

  spanAt(t) {
    return this.rank.parts.flatMap((part) => {
      const { begin, length } = this.rank.spans[part];
      const i = lastBefore(begin, t);
      return i >= 0 && t < begin[i] + length[i] ? [`${partName(part)} for ${lengthOf(length[i])}`] : [];
    });
  }

  columnAt(t) {
    const i = lastBefore(this.columns.edges, t);
    if (i < 0 || i >= this.columns.centres.length) return [];
    const shown = this.rank.parts.map((part) => [part, this.columns.shares[part][i]]);
    shown.push(["unseen", 1 - this.columns.known[i]]);
    return shown.filter(([, share]) => share >= 5e-4).map(([part, share]) => `${partName(part)} ${percentOf(share)}`);
  }
}
