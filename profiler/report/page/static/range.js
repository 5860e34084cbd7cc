// The table of what is in view, beside the whole window.
class RangeTable {
  constructor(place) {
    this.words = document.createElement("p");
    this.words.className = "range-words";
    this.words.setAttribute("aria-live", "polite");
    this.table = document.createElement("table");
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.append(this.table);
    this.how = document.createElement("p");
    this.how.className = "dim small";
    place.append(this.words, scroll, this.how);
  }

  show(rank, view) {
    const here = rank.range(view.from, view.to), whole = rank.range(rank.window, rank.end);
    const fine = Math.max(view.to - view.from, 1e-3) / 1e3;
    this.words.textContent = `In view: ${momentOf(view.from, fine)} to ${momentOf(view.to, fine)}, ` +
      `${lengthOf(view.to - view.from)} of ${lengthOf(rank.end - rank.begin)}`;
    const rows = [["part", "here", "share", "of all"]];
    for (const part of [...rank.parts, "unseen"]) {
      const of = (range) => (part === "unseen" ? range.unseen : range.parts[part]);
      // Rounding of what is stored is no time.
      if (of(whole) < 5e-4 * whole.length) continue;
      rows.push([part, lengthOf(of(here)), percentOf(here.length ? of(here) / here.length : null), percentOf(of(whole) / whole.length)]);
    }
    const rate = (range, sum) => (sum === null || !range.length ? null : (1e3 * sum) / range.length);
    rows.push(["steps", here.steps.toFixed(here.steps < 100 ? 1 : 0), "", whole.steps.toFixed(0)]);
    rows.push(here.samples === null
      ? ["steps/s", figure(rate(here, here.steps)), "", figure(rate(whole, whole.steps))]
      : ["samples/s", figure(rate(here, here.samples)), "", figure(rate(whole, whole.samples))]);
    if (rank.parts.includes("compute")) {
      rows.push(["gaps", String(here.gaps), "", String(whole.gaps)]);
      rows.push(["longest gap", here.gaps ? lengthOf(here.longest) : "–", "", whole.gaps ? lengthOf(whole.longest) : "–"]);
    }
    this.fill(rows, rank);
    const bin = lengthOf(rank.bins.width);
    this.how.textContent = rank.stretchOf(view.from, view.to)
      ? `Parts are of every span; steps, samples and gaps of bins of ${bin}.`
      : `Summed up from bins of ${bin}; of those at the edges, as much as is in view.`;
  }

  fill(rows, rank) {
    const [head, ...body] = rows;
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      cells.forEach((cell, i) => {
        const element = document.createElement(tag);
        if (i) element.className = "r";
        if (!i && tag === "td" && (rank.parts.includes(cell) || cell === "unseen")) {
          const swatch = document.createElement("span");
          swatch.className = `swatch part-${cell}`;
          element.append(swatch);
        }
        element.append(tag === "td" && !i ? partName(cell) : cell);
        row.append(element);
      });
      return row;
    };
    const top = document.createElement("thead"), rest = document.createElement("tbody");
    top.append(line(head, "th"));
    rest.append(...body.map((cells) => line(cells, "td")));
    this.table.replaceChildren(top, rest);
  }
}
