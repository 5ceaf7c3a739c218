// The palette: Ctrl K, or the field in the header. What is typed or pasted is looked for at once, and then in arguments that
// are not indexed, some jobs at a time, for as long as it is open. A combobox with a list, as ARIA describes it.
"use strict";
(() => {
  const { byId } = window.limpyd;
  const link = byId("find");
  if (!link) return;
  const address = link.href, root = new URL(address).pathname.replace(/\/find$/, "");
  const DELAY = 120;
  let dialog, input, list, status, options = [], at = -1, asked = 0;

  function element(tag, attributes = {}, ...children) {
    const found = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) found.setAttribute(name, value);
    found.append(...children);
    return found;
  }

  const SHAPES = { success: ["ok", "ok"], error: ["err", "err"], running: ["run", "run"], waiting: ["wait", "weak"], delayed: ["later", "later"], canceled: ["off", "weak"] };

  function icon(name) {
    const [shape, css] = SHAPES[name] ?? [name, "weak"], svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    svg.setAttribute("class", `i ${css}`);
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `#i-${shape}`);
    svg.append(use);
    return svg;
  }

  function distance(text) {
    const seconds = (Date.now() - new Date(`${text.replace(" ", "T")}Z`)) / 1000, number = Math.abs(seconds);
    if (Number.isNaN(seconds)) return "";
    const [unit, size] = [["s", 1, 120], ["min", 60, 120], ["h", 3600, 48], ["d", 86400, Infinity]].find(([, size, most]) => number < size * most);
    return seconds < 0 ? `in ${Math.floor(number / size)} ${unit}` : number < 1 ? "now" : `${Math.floor(number / size)} ${unit} ago`;
  }

  function made() {
    input = element("input", { type: "text", role: "combobox", "aria-label": "Find anything", "aria-expanded": "false", "aria-controls": "palette-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", placeholder: "Paste an ident, an address, a log line…" });
    list = element("div", { id: "palette-list", role: "listbox", "aria-label": "What is found" });
    status = element("p", { role: "status", class: "only-read" });
    const close = element("button", { type: "button", class: "quiet small" }, element("kbd", {}, "Esc"), element("span", { class: "only-read" }, "Close"));
    close.addEventListener("click", () => dialog.close());
    const keys = [["↑", "↓", "choose"], ["↵", "open"], ["Ctrl", "↵", "in a new tab"]].map((each) => element("span", {}, ...each.slice(0, -1).map((key) => element("kbd", {}, key)), ` ${each.at(-1)}`));
    dialog = element("dialog", { id: "palette", "aria-label": "Find anything" },
      element("div", { class: "ask-for" }, icon("find"), input, close), list, element("div", { class: "help" }, ...keys), status);
    input.addEventListener("input", later);
    input.addEventListener("keydown", press);
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => { asked += 1; link.focus(); });
    return document.body.appendChild(dialog);
  }

  function open() {
    if (dialog?.open) return;
    const selected = String(getSelection()).trim();
    (dialog ?? made()).showModal();
    if (selected && selected.length < 300) input.value = selected;
    input.select();
    input.focus();
    find();
  }

  function choose(next) {
    options[at]?.setAttribute("aria-selected", "false");
    at = options.length ? (next + options.length) % options.length : -1;
    const chosen = options[at];
    chosen?.setAttribute("aria-selected", "true");
    chosen?.scrollIntoView({ block: "nearest" });
    if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function go(option, isApart) {
    if (!option) return;
    if (option.dataset.form) {  // a verb, which asks first
      const form = element("form", { method: "post", action: option.dataset.address });
      for (const [name, value] of Object.entries(JSON.parse(option.dataset.form))) form.append(element("input", { type: "hidden", name, value }));
      document.body.append(form);
      form.submit();
      return;
    }
    if (isApart) window.open(option.dataset.address, "_blank", "noopener");
    else location.assign(option.dataset.address);
  }

  function press(event) {
    const { key } = event;
    if (event.isComposing) return;
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1 };
    if (key in moves) choose(moves[key]);
    else if (key === "Enter") {
      if (input.dataset.found === input.value) go(options[at], event.ctrlKey || event.metaKey);
      else input.dataset.goes = "1";  // it was pressed before the answer was there
    } else return;
    event.preventDefault();
  }

  function option(each) {
    const about = each.moment ? distance(each.moment) : each.note;
    const found = element("div", { role: "option", id: `palette-${options.length}`, "aria-selected": "false", "data-address": each.address.startsWith("http") ? each.address : root + each.address },
      icon(each.icon), element("span", { class: "cut" }, each.title, " ", element("code", { class: "weak" }, each.detail)),
      element("span", { class: "at-end" }, each.note && each.moment ? element("span", { class: "only-read" }, `${each.note}, `) : "", about));
    found.addEventListener("click", (event) => go(found, event.ctrlKey || event.metaKey));
    found.addEventListener("pointermove", () => { if (options[at] !== found) choose(options.indexOf(found)); });
    if (each.form && Object.keys(each.form).length) found.dataset.form = JSON.stringify(each.form);
    options.push(found);
    return found;
  }

  function group(title, members) {
    const id = `palette-group-${list.childElementCount}`;
    return element("div", { role: "group", "aria-labelledby": id }, element("p", { id, class: "head-of" }, title), ...members.map(option));
  }

  // The pages: all while nothing is typed, else those whose names begin with it.
  function pages(text = "") {
    const links = [...document.querySelectorAll(".rail [data-go]")].filter((each) => each.querySelector("span").textContent.toLowerCase().startsWith(text.toLowerCase()));
    return links.map((each) => ({ icon: each.querySelector("use").getAttribute("href").replace("#i-", ""), title: each.querySelector("span").textContent, detail: "", note: `g ${each.dataset.go}`, moment: "", address: each.href }));
  }

  function show(groups, text) {
    list.replaceChildren();
    options = [];
    for (const each of groups) if (each.options.length) list.append(group(each.title, each.options));
    input.setAttribute("aria-expanded", String(options.length > 0));
    input.dataset.found = text;
    choose(0);
    status.textContent = text && !options.length ? "Nothing is found at once" : `${options.length} found`;
  }

  async function ask(path, query) {
    const answer = await fetch(`${address}${path}?${new URLSearchParams(query)}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  let waits;
  function later() {
    clearTimeout(waits);
    asked += 1;
    waits = setTimeout(find, DELAY);
  }

  async function find() {
    const text = input.value.trim(), mine = asked += 1;
    if (!text) return show([{ title: "Go to", options: pages() }], input.value);
    try {
      const found = await ask("", { q: text });
      if (mine !== asked) return;
      show([{ title: "Go to", options: pages(text) }, ...found.groups], input.value);
      if (input.dataset.goes) { delete input.dataset.goes; if (options.length) return go(options[0]); }
      if (found.scans) await through(text, mine);
    } catch { if (mine === asked) status.textContent = "The dashboard does not answer"; }
  }

  // Looks on, part by part, and says how far it is. It ends with the palette, or when something else is typed.
  async function through(text, mine) {
    const known = new Set(options.map((each) => each.dataset.address)), line = element("p", { class: "head-of scan" });
    const box = element("div", { role: "group", "aria-label": "In arguments that are not indexed" }, line);
    let after = "", number = 0;
    do {
      const found = await ask("/through", { q: text, ...(after ? { after } : {}) });
      if (mine !== asked || !dialog.open) return;
      after = found.following ?? "";
      if (!box.parentElement && found.size) list.append(box);
      for (const each of found.options) {
        if (known.has(root + each.address) || number >= 20) continue;
        number += 1;
        box.append(option(each));
      }
      if (at < 0 && options.length) choose(0);
      input.setAttribute("aria-expanded", String(options.length > 0));
      line.textContent = `In arguments that are not indexed: looked at ${found.looked.toLocaleString("en")} of ${found.size.toLocaleString("en")} jobs${after ? "…" : number ? "" : ", and found nothing"}`;
    } while (after && number < 20);
    status.textContent = `${options.length} found`;
  }

  link.setAttribute("role", "button");
  link.setAttribute("aria-haspopup", "dialog");
  link.addEventListener("click", (event) => { event.preventDefault(); open(); });
  link.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); open(); } });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
})();
