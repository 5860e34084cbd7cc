// Light, dark, or as the system has it. Charts redraw on the "theme" event.
const themes = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");

function storedTheme() {
  try { return localStorage.getItem("whyidle-theme"); } catch { return null; }
}

function showTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  document.dispatchEvent(new Event("theme"));
}

function setTheme(name) {
  themeButton.textContent = `Theme: ${name}`;
  themeButton.dataset.name = name;
  showTheme(name);
}

themeButton.hidden = false;
setTheme(themes.includes(storedTheme()) ? storedTheme() : "auto");
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(themeButton.dataset.name) + 1) % themes.length];
  setTheme(next);
  try { localStorage.setItem("whyidle-theme", next); } catch { /* A page without storage forgets it. */ }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));

// Paper is white, also below what scripts drew, and opens nothing: what is behind a disclosure is printed.
let closed = [];
addEventListener("beforeprint", () => {
  showTheme("light");
  closed.push(...document.querySelectorAll("details:not([open])"));
  closed.forEach((each) => { each.open = true; });
});
addEventListener("afterprint", () => {
  showTheme(themeButton.dataset.name);
  closed.splice(0).forEach((each) => { each.open = false; });
});
