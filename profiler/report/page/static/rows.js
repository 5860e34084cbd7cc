// Charts whose vertical axis is a list: workers, kinds of marks. `paint(u, place)` draws, `at(t, row)` tells.
class Rows extends Chart {
  constructor(stage, title, names, rowHeight) {
    const count = names.length;
    super(stage, title, { series: [{ label: title, paths: () => null, points: { show: false } }], legend: false,
      data: [[stage.view.from, stage.view.to], [null, null]], scales: { y: { range: [0, count] } },
      height: 34 + rowHeight * count,
      axes: [{ ...valueAxis("y", 3, (v) => names[count - 1 - Math.floor(v)] ?? ""), grid: { show: false }, space: 1,
        splits: () => names.map((_, row) => count - row - 0.5) }],
      hooks: { draw: [(u) => this.draw?.(u)], setCursor: [(u) => this.hover?.(u)] } });
    this.count = count;
  }

  draw(u) {
    if (!this.paint) return;
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const room = bbox.height / this.count;
    this.paint(ctx, { x: (t) => u.valToPos(t, "x", true), top: (row) => bbox.top + row * room, room });
    ctx.restore();
  }

  update() {
    this.plot.setData([[this.stage.view.from, this.stage.view.to], [null, null]]);
  }

  hover(u) {
    if (!u.over.matches(":hover") || u.cursor.top < 0) return;
    const row = Math.min(this.count - 1, Math.floor((u.cursor.top / u.over.clientHeight) * this.count));
    const slack = 3 * (this.stage.view.to - this.stage.view.from) / Math.max(1, u.over.clientWidth);
    this.stage.tell(this.at(u.posToVal(u.cursor.left, "x"), row, slack), u);
  }
}

// Epochs, boundaries, phases, activity windows, warm-up.
class Marks extends Rows {
  constructor(stage, rank) {
    const kinds = [...new Set(rank.marks.map((mark) => mark.kind))];
    super(stage, "Events", kinds.map((kind) => kind.split(" ")[0]), 16);
    Object.assign(this, { kinds, marks: rank.marks });
    this.repaint();
  }

  paint(ctx, { x, top, room }) {
    const ink = { epoch: "text", boundary: "boundary", evaluation: "boundary", "warm-up": "untold", phase: "host" };
    for (const mark of this.marks) {
      const row = this.kinds.indexOf(mark.kind), left = x(mark.begin);
      ctx.fillStyle = colour(ink[mark.kind] ?? "sync");
      ctx.fillRect(left, top(row) + 2, Math.max(2, x(mark.end) - left), room - 4);
    }
  }

  at(t, row, slack) {
    const mark = this.marks.find((m) => m.kind === this.kinds[row] && t >= m.begin - slack && t <= m.end + slack);
    if (!mark) return [];
    const lasts = mark.end > mark.begin ? [`for ${lengthOf(mark.end - mark.begin)}`] : [];
    return [`${mark.kind} ${mark.name}`.trim(), ...lasts];
  }
}
