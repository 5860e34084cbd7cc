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

// Stripes: time of steps that nobody looked at.
function stripes(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour("dim");
  pen.globalAlpha = 0.45;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) { pen.moveTo(shift, 8); pen.lineTo(shift + 8, 0); }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
