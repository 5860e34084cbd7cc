// Tables that sort by a click on a column's head.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const first = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const figures = head.classList.contains("r") || first.some((row) => /^[\d.]/.test(row.cells[column].textContent));
      // Figures from the largest on, words from A on; a third click brings the first order back.
      const orders = figures ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const order = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % orders.length];
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      if (order) head.setAttribute("aria-sort", order);
      body.append(...(order ? sorted(first, column, figures, order === "ascending" ? 1 : -1) : first));
    });
  });
}

// What was not measured goes last, whichever way the table is sorted.
function sorted(rows, column, figures, sign) {
  const value = (row) => {
    const cell = row.cells[column];
    return figures ? parseFloat(cell.textContent) : cell.textContent.trim();
  };
  const missing = (of) => (figures ? Number.isNaN(of) : of === "");
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (figures ? a - b : a.localeCompare(b, "en", { numeric: true }));
  });
}
