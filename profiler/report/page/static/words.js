// Figures for people. What was not measured is n/a.
const notMeasured = "n/a";
const partNames = { untold: "not told apart", unseen: "not looked at" };
const partName = (part) => partNames[part] ?? part;

function significant(value, digits) {
  if (value === 0) return "0";
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 6));
}

// A length of time.
function lengthOf(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return notMeasured;
  const units = [[3600e3, "h"], [60e3, "min"], [1e3, "s"], [1, "ms"], [1e-3, "µs"]];
  for (const [size, unit] of units) if (Math.abs(ms) >= size) return `${significant(ms / size, 3)} ${unit}`;
  return ms === 0 ? "0 ms" : `${significant(ms * 1e3, 2)} µs`;
}

// A moment of the run, as finely as `step` ms needs.
function momentOf(ms, step) {
  const sign = Math.round(ms / Math.min(step, 1e3)) < 0 ? "−" : "";
  ms = Math.abs(ms);
  if (step < 1) return `${sign}${significant(ms, Math.max(3, Math.ceil(Math.log10(ms / step + 1)) + 1))} ms`;
  const digits = step >= 1000 ? 0 : [1, 2].find((n) => isWhole((step / 1e3) * 10 ** n)) ?? 3;
  const units = Math.round((ms / 1e3) * 10 ** digits), all = 10 ** digits;
  const s = (units / all) % 60, min = Math.floor(units / all / 60) % 60, h = Math.floor(units / all / 3600);
  if (digits && !h && !min) return `${sign}${s.toFixed(digits)} s`;
  const two = (n, places = 0) => n.toFixed(places).padStart(places ? places + 3 : 2, "0");
  return sign + (h ? `${h}:${two(min)}` : `${min}`) + `:${two(s, digits)}`;
}

const isWhole = (value) => Math.abs(value - Math.round(value)) < 1e-6;

// Beside an axis: no zeros that say nothing.
const tick = (value, digits = 4) => String(Number(value.toPrecision(digits)));
