// What pages do beyond HTML: times in the viewer's zone, the theme, selecting rows. All works without it, too.
"use strict";
(() => {
  const times = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });

  function localise(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (!Number.isNaN(moment.getTime())) time.textContent = times.format(moment);
    }
  }

  function nameZone() {
    const zone = document.getElementById("zone");
    if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "the zone of this device";
  }

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function offerTheme() {
    const button = document.getElementById("theme");
    if (!button) return;
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      document.documentElement.dataset.theme = theme;
      try { localStorage.setItem("limpyd-jobs-theme", theme); } catch { /* storage may be forbidden */ }
      name();
      document.dispatchEvent(new CustomEvent("theme"));
    });
    button.hidden = false;
    name();
  }

  // A checkbox with data-all="name" checks all of that name.
  function selectAll() {
    document.addEventListener("change", ({ target }) => {
      if (!target.matches?.("input[data-all]")) return;
      for (const each of document.getElementsByName(target.dataset.all)) each.checked = target.checked;
    });
  }

  function offerAll(root) {
    for (const all of root.querySelectorAll("input[data-all]")) all.hidden = false;
  }

  // A click on a completion puts it in the place of the last word of the filter.
  function completeWords() {
    document.addEventListener("click", (event) => {
      const button = event.target.closest?.("button[data-word]");
      const input = document.getElementById("q");
      if (!button || !input) return;
      const word = button.dataset.word;
      input.value = input.value.replace(/\S*$/, "") + word + (word.endsWith("=") ? "" : " ");
      input.focus();
      input.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  function prepare(root) {
    localise(root);
    offerAll(root);
  }

  prepare(document);
  selectAll();
  nameZone();
  offerTheme();
  completeWords();
  const lost = document.getElementById("lost");
  document.addEventListener("htmx:after:swap", () => {
    prepare(document);
    if (lost) lost.hidden = true;
  });
  for (const event of ["htmx:response:error", "htmx:error", "htmx:sse:error"]) {
    document.addEventListener(event, () => { if (lost) lost.hidden = false; });
  }
})();
