// Light, dark, or as the system has it. Charts redraw on the "theme" event.
const themes = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");

function storedTheme() {
  try { return localStorage.getItem("stallscope-theme"); } catch { return null; }
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  themeButton.textContent = `Theme: ${name}`;
  themeButton.dataset.name = name;
  document.dispatchEvent(new Event("theme"));
}

themeButton.hidden = false;
setTheme(themes.includes(storedTheme()) ? storedTheme() : "auto");
themeButton.addEventListener("click", () => {
  const next = themes[(themes.indexOf(themeButton.dataset.name) + 1) % themes.length];
  setTheme(next);
  try { localStorage.setItem("stallscope-theme", next); } catch { /* A page without storage forgets it. */ }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
