// The page's colours, as a canvas needs them.
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
let known = new Map();
document.addEventListener("theme", () => { known = new Map(); });

function colour(name) {
  if (!known.has(name)) {
    probe.style.color = `var(--${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}
