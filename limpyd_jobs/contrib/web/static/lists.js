// What lists of jobs do beyond HTML: the number of those that are chosen in the verbs, completions by arrows, tokens by
// Backspace; and the question whose number has to be typed.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");

  function showChosen() {
    const form = document.querySelector("[data-choosing]");
    if (!form) return;
    const every = form.querySelector("[data-every]"), boxes = [...form.querySelectorAll("input[name=ident]:checked")];
    const chosen = form.querySelector("[data-chosen]"), number = boxes.length;
    chosen.hidden = !number || !!every?.checked;
    chosen.textContent = `${number} chosen of`;
    for (const button of form.querySelectorAll("[data-verb]")) {
      const text = button.querySelector("[data-verb-text]");
      text.textContent = `${button.dataset.verb}${every?.checked ? " all" : number ? ` ${number}` : ""}${text.dataset.end}`;
    }
  }

  document.addEventListener("change", ({ target }) => { if (target.closest?.("[data-choosing]")) setTimeout(showChosen); });

  // A key of a verb that is pressed on a row, while none is chosen, is about that row.
  document.addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
    const row = target.closest?.("[data-choosing] [data-row]"), box = row?.querySelector("input[name=ident]");
    if (!["r", "."].includes(key) || ctrlKey || metaKey || altKey || !box || !box.form) return;
    if (window.limpyd.kept.get("keys") === "off" || box.form.querySelector("input[name=ident]:checked, [data-every]:checked")) return;
    box.checked = true;
    showChosen();
  }, true);

  document.addEventListener("keydown", (event) => {
    const { key, target } = event, words = [...document.querySelectorAll("[data-word]")];
    if (target.id === "q" && key === "Backspace" && !target.value) {
      const tokens = document.querySelectorAll("[data-token]");
      tokens[tokens.length - 1]?.click();
    } else if ((target.id === "q" || target.matches?.("[data-word]")) && words.length && ["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"].includes(key)) {
      const at = words.indexOf(target), step = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
      if (at < 0 && key !== "ArrowDown") return;
      event.preventDefault();
      (words[at + step] ?? document.getElementById("q")).focus();
    }
  });

  // A link that opens what it leads to.
  document.addEventListener("click", ({ target }) => {
    const box = document.getElementById(target.closest?.("[data-opens]")?.dataset.opens ?? "");
    if (!box) return;
    box.open = true;
    setTimeout(() => box.querySelector("textarea, input:not([type=hidden])")?.focus());
  });

  // A click elsewhere, or Escape, closes a menu.
  const menus = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", ({ target }) => { for (const each of menus()) if (!each.contains(target)) each.open = false; });
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") for (const each of menus()) { each.open = false; each.querySelector("summary").focus(); } });

  // The button waits for the number.
  const typed = document.querySelector("[data-typed]"), yes = document.querySelector("[data-yes]");
  if (typed && yes) {
    const look = () => { yes.disabled = typed.value.replace(/\D/g, "") !== typed.dataset.typed; };
    typed.addEventListener("input", look);
    look();
  }

  showChosen();
  document.addEventListener("htmx:after:swap", showChosen);
})();
