// The whole run in small; what is in view stands out. Dragging chooses it.
class Strip {
  constructor(stage) {
    this.stage = stage;
    this.element = document.createElement("canvas");
    this.element.className = "strip screen-only";
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", "The whole run; drag to choose what is in view");
    this.element.addEventListener("pointerdown", (event) => this.grab(event));
    this.element.addEventListener("wheel", (event) => {
      stage.zoom(Math.exp(Math.sign(event.deltaY) * 0.25), this.at(event.clientX));
      event.preventDefault();
    }, { passive: false });
  }

  at(clientX) {
    const box = this.element.getBoundingClientRect(), { begin, end } = this.stage.rank;
    return begin + Math.min(1, Math.max(0, (clientX - box.left) / box.width)) * (end - begin);
  }

  grab(event) {
    const start = this.at(event.clientX), { from, to } = this.stage.view;
    this.element.setPointerCapture(event.pointerId);
    const move = (e) => {
      const now = this.at(e.clientX);
      if (Math.abs(e.clientX - event.clientX) > 3) this.stage.show(Math.min(start, now), Math.max(start, now));
    };
    const up = (e) => {
      this.element.removeEventListener("pointermove", move);
      for (const type of ["pointerup", "pointercancel"]) this.element.removeEventListener(type, up);
      // A touch that became the page's scrolling chose nothing.
      if (e.type === "pointercancel") return;
      // A click without a drag puts the middle of the view there.
      if (Math.abs(e.clientX - event.clientX) <= 3) this.stage.show(start - (to - from) / 2, start + (to - from) / 2);
    };
    this.element.addEventListener("pointermove", move);
    for (const type of ["pointerup", "pointercancel"]) this.element.addEventListener(type, up);
  }

  draw() {
    const { rank, view } = this.stage, canvas = this.element;
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const ctx = canvas.getContext("2d");
    ctx.scale(scale, scale);
    const x = (t) => ((t - rank.begin) / (rank.end - rank.begin)) * width;
    const { edges, shares } = rank.columns(rank.begin, rank.end, Math.max(60, Math.floor(width / 2)));
    const base = new Float64Array(edges.length - 1);
    for (const part of rank.parts) {
      ctx.fillStyle = colour(part);
      for (let i = 0; i < base.length; i++) {
        const h = shares[part][i] * height;
        ctx.fillRect(x(edges[i]), height - base[i] - h, x(edges[i + 1]) - x(edges[i]) + 0.4, h);
        base[i] += h;
      }
    }
    ctx.fillStyle = colour("card");
    ctx.globalAlpha = 0.72;
    ctx.fillRect(0, 0, x(view.from), height);
    ctx.fillRect(x(view.to), 0, width, height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = colour("text");
    ctx.strokeRect(x(view.from) + 0.5, 0.5, Math.max(2, x(view.to) - x(view.from) - 1), height - 1);
  }
}
