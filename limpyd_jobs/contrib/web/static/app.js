// What pages do beyond HTML: times in the viewer's zone, the theme, live parts and their pause, selecting rows. All works
// without it, too. `window.limpyd` is what other scripts of ours may use.
"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const kept = {
    get: (name) => { try { return localStorage.getItem(`limpyd-jobs-${name}`); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(`limpyd-jobs-${name}`, value); } catch { /* storage may be forbidden */ } },
  };

  // Times: of the viewer's zone, or UTC.
  const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const local = new Intl.DateTimeFormat(undefined, parts);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "the zone of this device";
  const both = (options) => [undefined, "UTC"].map((timeZone) => new Intl.DateTimeFormat(undefined, { ...options, timeZone }));
  const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const clocks = both(CLOCK), days = [new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" })];
  days.push(days[0]);
  const UNITS = [["s", 1, 120], ["min", 60, 120], ["h", 3600, 48], ["d", 86400, Infinity]];
  let isUtc = kept.get("utc") === "1";

  function distance(seconds) {
    const number = Math.abs(seconds), [unit, size] = UNITS.find(([, size, most]) => number < size * most);
    if (number < 1) return "now";
    const text = `${Math.floor(number / size).toLocaleString("en")} ${unit}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
  }

  function show(time) {
    const moment = new Date(time.dateTime), utc = time.title;
    if (Number.isNaN(moment.getTime())) return;
    const shown = "ago" in time.dataset ? distance((Date.now() - moment) / 1000)
      : "clock" in time.dataset ? (isUtc ? utc.slice(11, 16) : clocks[0].format(moment))
        : isUtc ? utc : local.format(moment);
    if (time.textContent !== shown) time.textContent = shown;
  }

  // Times in pictures: of the day, or days.
  function showAxis(text) {
    const at = new Date(text.dataset.clock ?? text.dataset.day), format = text.dataset.day ? days : clocks;
    text.textContent = format[isUtc ? 1 : 0].format(at);
  }

  function showTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) show(time);
    for (const text of document.querySelectorAll("text[data-clock], text[data-day]")) showAxis(text);
  }

  function offset() {
    const minutes = -new Date().getTimezoneOffset(), rest = Math.abs(minutes) % 60;
    return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${rest}` : ""}`;
  }

  // The zone is named in the footer, where a button shows UTC instead: also on a phone, and by keyboard.
  function offerUtc() {
    const button = byId("utc");
    if (!button) return;
    const name = () => {
      byId("zone").textContent = isUtc ? "UTC" : `${zone}, ${offset()}`;
      button.textContent = isUtc ? `Show ${zone}` : "Show UTC";
      button.setAttribute("aria-pressed", isUtc);
    };
    button.addEventListener("click", () => {
      isUtc = !isUtc;
      kept.set("utc", isUtc ? "1" : "0");
      name();
      showTimes();
    });
    button.hidden = false;
    name();
  }

  // A tap on a time shows it in both zones.
  function explainTimes() {
    const tip = byId("tip");
    document.addEventListener("click", ({ target }) => {
      const time = target.closest?.("time[datetime]");
      tip.hidden = !time || !!target.closest("a, button, summary");
      if (tip.hidden) return;
      tip.textContent = `${local.format(new Date(time.dateTime))} ${zone} · ${time.title}`;
    });
    addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  }

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function offerTheme() {
    const button = byId("theme");
    const name = () => button.setAttribute("aria-label", isDark() ? "Light theme" : "Dark theme");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      kept.set("theme", root.dataset.theme);
      name();
    });
    button.hidden = false;
    name();
  }

  // Live parts. The button pauses them; so does a form in them that is being filled in, a selection, and what is marked.
  const live = () => document.querySelector("[data-live]");
  let isPaused = false;

  // Each answer says that the dashboard is there; the stream of the overview has one every two seconds, whatever changes.
  const QUIET = 10000;
  let heard = Date.now(), isLost = false, stream = null;

  function hear() {
    heard = Date.now();
    if (isLost) lose(false);
  }

  function lose(found = true) {
    const text = byId("lost");
    if (!text || found === isLost) return;
    isLost = found;
    const since = new Intl.DateTimeFormat(undefined, { ...CLOCK, second: "2-digit", ...(isUtc ? { timeZone: "UTC" } : {}) }).format(heard);
    text.textContent = found ? `No answer since ${since}: what is shown may be old.` : "";
    text.hidden = !found;
    showLive();
  }

  // A connection may be dead without being closed: so a quiet stream is begun anew.
  function listen() {
    if (!live() || document.hidden || (live().matches("[hx-get]") && isHeld())) heard = Date.now();
    if (Date.now() - heard <= QUIET) return;
    if (!isLost) stream?.reader?.cancel();
    lose();
  }

  function offerLost() {
    document.addEventListener("htmx:sse:after:connection", (event) => { stream = event.detail.connection; hear(); });
    document.addEventListener("htmx:sse:before:message", hear);
    document.addEventListener("htmx:after:swap", hear);
    document.addEventListener("visibilitychange", () => { heard = Date.now(); });
    for (const event of ["htmx:response:error", "htmx:error", "htmx:sse:error"]) document.addEventListener(event, () => lose());
    setInterval(listen, 1000);
  }

  function isBusy() {
    const part = live();
    if (!part) return false;
    const at = document.activeElement, selected = getSelection();
    return part.contains(at) && at.matches("input:not([type=checkbox]), select, textarea, form button:focus-visible")
      || !!part.querySelector("form button:hover")  // what is about to be pressed stays where it is
      || !!part.querySelector("input[type=checkbox]:checked, details[open] form, form:popover-open, [data-holds]")
      || !!document.querySelector("dialog[open]")
      || (!selected.isCollapsed && part.contains(selected.anchorNode));
  }

  const isHeld = () => isPaused || isBusy();

  function showLive() {
    const button = byId("live-button");
    if (!button) return;
    button.hidden = !live();
    const held = isHeld(), state = isLost && !isPaused ? "lost" : String(held);
    if (state === button.dataset.held && String(isPaused) === button.getAttribute("aria-pressed")) return;
    button.dataset.held = state;
    button.setAttribute("aria-pressed", isPaused);
    button.querySelector(".label").textContent = state === "lost" ? "No answer" : held ? "Paused" : "Live";
    button.title = isPaused ? "Press to go on" : held ? "Paused while you fill in a form or select" : "Press to pause";
    button.querySelector("use").setAttribute("href", state === "lost" ? "#i-warn" : held ? "#i-play" : "#i-pause");
  }

  function pause() {
    isPaused = !isPaused;
    showLive();
  }

  function offerLive() {
    byId("live-button")?.addEventListener("click", pause);
    const hold = (event) => { if (event.target.closest?.("[data-live]") && isHeld()) event.preventDefault(); };
    document.addEventListener("htmx:before:request", (event) => { if (event.target.matches?.("[data-live][hx-get]")) hold(event); });
    document.addEventListener("htmx:sse:before:message", hold);
    for (const name of ["focusin", "focusout", "change", "toggle", "selectionchange", "pointerover"]) {
      document.addEventListener(name, () => setTimeout(showLive), true);
    }
    showLive();
  }

  // The title, the symbol of the window and the rail say what the live part says; a screen reader only what is new or gone.
  // Incidents are about queues: as some are one card now, several then, the same queue in another card is no news.
  const texts = () => [...document.querySelectorAll("[data-incident]")].map((each) => [each.dataset.incident.split(" "), each.dataset.says]);
  let before = texts();

  function tellNews() {
    const news = byId("news"), now = texts();
    const [old, current] = [before, now].map((some) => new Set(some.flatMap(([keys]) => keys)));
    const fresh = now.filter(([keys]) => keys.some((key) => !old.has(key))).map(([, text]) => `New: ${text}`);
    const gone = before.filter(([keys]) => !keys.some((key) => current.has(key))).map(([, text]) => `Over: ${text}`);
    before = now;
    if (news && fresh.length + gone.length) news.textContent = [...fresh, ...gone].join(" ");
  }

  function showTrouble() {
    const found = byId("trouble")?.dataset;
    if (!found) return;
    document.title = document.title.replace(/^▲[\d,]+ /, "").replace(/^/, found.problems === "0" ? "" : `▲${Number(found.problems).toLocaleString("en")} `);
    const icon = byId("favicon"), address = found.grave ? icon.dataset.trouble : icon.dataset.well;
    if (icon.getAttribute("href") !== address) icon.setAttribute("href", address);
    byId("logo").classList.toggle("trouble", !!found.grave);
    for (const badge of document.querySelectorAll("[data-badge]")) {
      const number = found[badge.dataset.badge];
      badge.hidden = number === "0";
      badge.firstElementChild.textContent = number;
    }
  }

  // A checkbox with data-all="name" checks all of that name.
  function selectAll() {
    document.addEventListener("change", ({ target }) => {
      if (!target.matches?.("input[data-all]")) return;
      for (const each of document.getElementsByName(target.dataset.all)) each.checked = target.checked;
    });
  }

  const offer = () => { for (const each of document.querySelectorAll("input[data-all], [data-copy]")) each.hidden = false; };

  // A button with data-copy copies what it has, or the text of the element that it names as #id.
  function copyTexts() {
    document.addEventListener("click", ({ target }) => {
      const button = target.closest?.("[data-copy]");
      if (!button) return;
      const what = button.dataset.copy, text = what.startsWith("#") ? byId(what.slice(1)).innerText : what;
      copy(text).then(() => { byId("news").textContent = "Copied"; button.classList.add("done"); }, () => {});
    });
  }

  const copy = (text) => navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject(new Error("no clipboard"));

  // A click on a completion puts it in the place of the last word of the filter.
  function completeWords() {
    document.addEventListener("click", (event) => {
      const button = event.target.closest?.("button[data-word]");
      const input = byId("q");
      if (!button || !input) return;
      const word = button.dataset.word;
      input.value = input.value.replace(/\S*$/, "") + word + (word.endsWith("=") ? "" : " ");
      input.focus();
      input.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }

  // One line through all lanes where the pointer is, and the values there at their left.
  function readLanes() {
    const lanes = (target) => target.closest?.("[data-lanes]");
    function leave(strip) {
      strip.classList.remove("read");
      for (const each of strip.querySelectorAll("[data-last]")) each.textContent = each.dataset.last;
    }
    document.addEventListener("pointermove", ({ target, clientX }) => {
      const strip = lanes(target), picture = strip?.querySelector(".lane svg");
      if (!picture) return;
      const box = picture.getBoundingClientRect(), share = (clientX - box.left) / box.width;
      if (share < 0 || share > 1) return leave(strip);
      strip.classList.add("read");
      for (const each of strip.querySelectorAll("[data-values]")) {
        const values = each.dataset.values.split(";"), at = Math.min(values.length - 1, Math.floor(share * values.length));
        each.querySelector("[data-last]").textContent = values[at] || "–";
      }
      for (const line of strip.querySelectorAll(".cross")) {
        line.setAttribute("x1", `${share * 100}%`);
        line.setAttribute("x2", `${share * 100}%`);
      }
    });
    document.addEventListener("pointerout", (event) => {
      const strip = lanes(event.target);
      if (strip && lanes(event.relatedTarget ?? document) !== strip) leave(strip);
    });
  }

  function prepare() {
    showTimes();
    offer();
    showLive();
  }

  window.limpyd = { kept, pause, copy, byId, isHeld };
  prepare();
  selectAll();
  offerUtc();
  explainTimes();
  offerTheme();
  offerLive();
  offerLost();
  copyTexts();
  completeWords();
  readLanes();
  setInterval(showTimes, 5000);
  document.addEventListener("htmx:after:swap", () => {
    prepare();
    showTrouble();
    tellNews();
  });
})();
