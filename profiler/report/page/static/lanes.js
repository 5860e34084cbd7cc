// Who made which batch, when. Where batches are not kept one by one, how busy each worker was.
class Lanes extends Rows {
  constructor(stage, rank) {
    const lanes = rank.lanes;
    const height = lanes.workers.length > 16 ? 12 : 22;
    const timed = lanes.untimed ? `: 1 of ${tick((lanes.total + lanes.untimed) / lanes.total, 2)} is timed, blanks are no idling` : "";
    const title = lanes.inTraining ? "Making batches" : "Making batches, by worker";
    super(stage, title + timed, lanes.inTraining ? ["training"] : lanes.workers.map(String), height);
    Object.assign(this, { rank, lanes });
    this.repaint();
  }

  paint(ctx, place) {
    const { from, to } = this.stage.view;
    this.paintBusy(ctx, place, from, to);
    this.inView(from, to, (i) => this.paintBatch(ctx, place, i));
  }

  // Calls back with each kept batch that reaches into the view.
  inView(from, to, each) {
    const { begin, length, longest } = this.lanes;
    for (let i = lastBefore(begin, from - longest) + 1; i < begin.length && begin[i] < to; i++) {
      if (begin[i] + length[i] >= from) each(i);
    }
  }

  paintBusy(ctx, { x, top, room }, from, to) {
    const { count, share } = this.lanes.busy;
    const width = (this.rank.end - this.rank.window) / count;
    const first = Math.max(0, Math.floor((from - this.rank.window) / width));
    const last = Math.min(count, Math.ceil((to - this.rank.window) / width));
    ctx.fillStyle = colour("untold");
    for (let i = first; i < last; i++) {
      const begin = this.rank.window + i * width;
      if (this.rank.stretchOf(begin, begin + width)) continue;
      const left = x(begin), right = x(begin + width);
      this.lanes.workers.forEach((_, row) => {
        ctx.globalAlpha = (0.7 * share[row * count + i]) / 255;
        ctx.fillRect(left, top(row) + 2, Math.max(1, right - left), room - 4);
      });
    }
    ctx.globalAlpha = 1;
  }

  paintBatch(ctx, { x, top, room }, i) {
    const { worker, begin, length, read, blocked } = this.lanes;
    if (worker[i] >= this.lanes.workers.length) return;
    const left = x(begin[i]), right = Math.max(left + 1, x(begin[i] + length[i]) - 0.6), y = top(worker[i]) + 2;
    ctx.fillStyle = colour("host");
    ctx.fillRect(left, y, right - left, room - 4);
    if (read[i] > 0) {
      ctx.fillStyle = colour("copy");
      ctx.fillRect(left, y, (right - left) * Math.min(1, read[i] / length[i]), room - 4);
    }
    if (blocked[i] > 0) {
      const from = x(begin[i] + length[i] - blocked[i]);
      ctx.fillStyle = colour("critical");
      ctx.fillRect(from, y + (room - 4) * 0.6, Math.max(1.5, right - from), (room - 4) * 0.4);
    }
  }

  at(t, row, slack) {
    const { worker, begin, length } = this.lanes;
    let found = -1;
    this.inView(t - slack, t + slack, (i) => {
      if (worker[i] === row && (found < 0 || (begin[i] <= t && begin[i] + length[i] >= t))) found = i;
    });
    return found < 0 ? this.busyAt(t, row) : this.told(found);
  }

  maker(row) {
    return this.lanes.inTraining ? "in the training process" : `worker ${this.lanes.workers[row]}`;
  }

  busyAt(t, row) {
    const { count, share } = this.lanes.busy;
    const i = Math.floor(((t - this.rank.window) / (this.rank.end - this.rank.window)) * count);
    if (i < 0 || i >= count || this.rank.stretchOf(t, t)) return [];
    return [this.maker(row), `made batches in ${percentOf(share[row * count + i] / 255)} of this stretch`];
  }

  told(i) {
    const { worker, length, read, step, batch, blocked, slowest, sample, file, files } = this.lanes;
    const lines = [`${this.maker(worker[i])}${batch[i] >= 0 ? `, batch ${batch[i]}` : ""}${step[i] >= 0 ? `, for step ${step[i]}` : ""}`,
      `took ${lengthOf(length[i])}${Number.isNaN(read[i]) ? "" : `, ${lengthOf(read[i])} of it reading`}`];
    if (blocked[i] > 0) lines.push(`the training waited ${lengthOf(blocked[i])} for it while a later one lay finished`);
    if (!Number.isNaN(slowest[i])) {
      const which = [Number.isNaN(sample[i]) ? "" : `index ${sample[i]}`, file[i] >= 0 ? files[file[i]] : ""].filter(Boolean);
      lines.push(`slowest sample ${lengthOf(slowest[i])}${which.length ? `: ${which.join(", ")}` : ""}`);
    }
    return lines;
  }
}
