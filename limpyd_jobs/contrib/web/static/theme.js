// Before the page is drawn: the theme that the viewer chose; else that of the system.
"use strict";
try {
  const chosen = localStorage.getItem("limpyd-jobs-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden */ }
