// The keys. A page gives an element a key by an attribute, and nothing else: data-key="p" is pressed by p, data-go="q" by
// g q. A row, data-row, is reached by j and k: keys of elements in it are those of the row. Letters are off in fields.
"use strict";
(() => {
  const { kept, pause, copy, byId } = window.limpyd;

  // What the help lists: the keys, what they do, and where that works: a selector.
  const KEYS = [
    ["Ctrl K", "Find anything", "#find"],
    ["/", "Find on this page", "#q, [data-find]"],
    ["j k", "Next row, row before", "[data-row]"],
    ["Enter", "Open it", "[data-row]"],
    ["x", "Choose it", "[data-row] input[type=checkbox]"],
    ["Shift x", "Choose all to here", "[data-row] input[type=checkbox]"],
    ["r", "Requeue: asks first", "[data-key=r]"],
    ["p Enter", "Pause, or resume", "[data-key=p]"],
    ["c", "Copy its ident", "[data-ident]"],
    [".", "More verbs", "[data-key='.']"],
    ["u", "Times in UTC, or in your zone", "#utc"],
    ["l", "Pause what is live", "[data-live]"],
    ["t", "Light, or dark", "#theme"],
    ["Esc", "Back, without doing", "body"],
    ["?", "These keys", "body"],
  ];

  const isOff = () => kept.get("keys") === "off";
  const isField = (element) => element.matches?.("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
  const isShown = (element) => element.checkVisibility();
  const rows = () => [...document.querySelectorAll("[data-row]")].filter(isShown);
  const row = () => document.activeElement.closest?.("[data-row]");
  let from = null, waitsUntil = 0;

  // The first element of the present row, or else of the page, that has a key.
  const withKey = (key) => [row(), document].filter(Boolean).flatMap((each) => [...each.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)]).find(isShown);

  function move(step) {
    const all = rows(), at = all.indexOf(row());
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))];
    next?.querySelector("a[href], button, input")?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  // To pause acts at once, without a question: its key leads to the button, and Enter presses it.
  function press(key, element) {
    if (key !== "p") return element.click();
    element.focus();
    byId("news").textContent = `Enter: ${element.ariaLabel ?? element.textContent.trim()}`;
  }

  const boxOf = (each) => each?.querySelector("input[type=checkbox]");

  function choose(toHere) {
    const box = boxOf(row()), all = rows();
    if (!box) return;
    box.click();
    const [low, high] = [all.indexOf(from), all.indexOf(row())].sort((a, b) => a - b);
    if (toHere && from && low >= 0) for (const each of all.slice(low, high + 1)) if (boxOf(each) && boxOf(each).checked !== box.checked) boxOf(each).click();
    from = row();
  }

  function find() {
    const field = document.querySelector("#q, [data-find]");
    field?.focus();
    field?.select?.();
  }

  function help() {
    const dialog = byId("keys") ?? document.body.appendChild(made());
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  function element(tag, text = "", ...children) {
    const found = document.createElement(tag);
    found.append(text, ...children);
    return found;
  }

  function made() {
    const pages = [...document.querySelectorAll("[data-go]")].map((each) => [`g ${each.dataset.go}`, each.querySelector("span").textContent, "body"]);
    const list = element("dl");
    for (const [keys, does, where] of [...KEYS, ...pages]) {
      if (!document.querySelector(where)) continue;
      const named = element("dt", "", ...keys.split(" ").flatMap((key) => [element("kbd", key), " "]));
      list.append(element("div", "", named, element("dd", does)));
    }
    const box = Object.assign(element("input"), { type: "checkbox", checked: !isOff() });
    box.addEventListener("change", () => kept.set("keys", box.checked ? "on" : "off"));
    const close = Object.assign(element("button", "Close"), { type: "button", autofocus: true });
    const dialog = Object.assign(element("dialog", "", element("h2", "Keys"), list, element("p", "", element("label", "", box, " Letters are keys")), close), { id: "keys" });
    dialog.setAttribute("aria-label", "Keys");
    close.addEventListener("click", () => dialog.close());
    return dialog;
  }

  function back() {
    const at = document.activeElement, dialog = document.querySelector("dialog[open]");
    if (dialog) return;
    const no = document.querySelector("[data-no]");
    if (isField(at)) at.blur();
    else no?.click();
  }

  const DO = {
    "/": find,
    "?": help,
    j: () => move(1),
    k: () => move(-1),
    x: () => choose(false),
    X: () => choose(true),
    c: () => { const ident = (row() ?? document).querySelector("[data-ident]")?.dataset.ident; if (ident) copy(ident).then(() => { byId("news").textContent = `Copied ${ident}`; }, () => {}); },
    l: pause,
    t: () => byId("theme").click(),
    u: () => byId("utc").click(),
    g: () => { waitsUntil = Date.now() + 1500; },
  };

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (key === "Escape") return back();
    if (isField(target) || isOff() && /^[a-z.]$/i.test(key) || document.querySelector("dialog[open]") && key !== "?") return;
    const goes = Date.now() < waitsUntil && document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    waitsUntil = 0;
    const does = goes ? () => goes.click() : DO[key] ?? (withKey(key) && (() => press(key, withKey(key))));
    if (!does) return;
    event.preventDefault();
    does();
  });

  const button = byId("keys-button");
  button.addEventListener("click", help);
  button.hidden = false;
})();
