// Icicles: a click zooms into a box, another click on it zooms out; a search marks boxes.
const widths = new WeakMap();

function zoomTo(icicle, item) {
  for (const each of icicle.querySelectorAll("li")) {
    each.hidden = false;
    each.classList.remove("within");
    each.style.width = widths.get(each);
  }
  for (let at = item; at && icicle.contains(at); at = at.parentElement.closest("li")) {
    for (const beside of at.parentElement.children) beside.hidden = beside !== at;
    at.style.width = "100%";
    if (at !== item) at.classList.add("within");
  }
}

function mark(flame, wanted) {
  let looks = 0;
  for (const item of flame.querySelectorAll("li")) {
    const hit = wanted !== "" && item.firstElementChild.title.toLowerCase().includes(wanted);
    item.classList.toggle("hit", hit);
    // Boxes within a box that was found count with it.
    if (hit && !item.parentElement.closest("li.hit")) looks += Number(item.dataset.looks);
  }
  const share = (100 * looks) / Number(flame.dataset.looks);
  flame.querySelector(".found").textContent = wanted === "" ? "" : `· in ${share.toFixed(1)} % of them`;
}

for (const flame of document.querySelectorAll("details.flame")) {
  const icicle = flame.querySelector(".icicle");
  const told = flame.querySelector("pre.told");
  flame.classList.add("scripted");
  told.hidden = false;
  told.textContent = "Point at a box or touch it to see its line. Click it to zoom in, click again to zoom out.";
  for (const item of icicle.querySelectorAll("li")) widths.set(item, item.style.width);
  let zoomed = null;
  const tell = (event) => {
    const box = event.target.closest(".icicle span");
    if (box) told.textContent = box.title;
  };
  icicle.addEventListener("pointerover", tell);
  icicle.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (!item) return;
    tell(event);
    zoomed = item === zoomed ? item.parentElement.closest("li") : item;
    zoomTo(icicle, zoomed);
  });
}

const tools = document.querySelector(".flame-tools");
if (tools) {
  tools.hidden = false;
  tools.querySelector("input").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const flame of document.querySelectorAll("details.flame")) mark(flame, wanted);
  });
}
