// The charts of the overview, drawn from the series that the live part of the page has.
"use strict";
(() => {
  const plots = new Map();

  // The time of day, in the zone and the manner of the viewer.
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const timeOf = (seconds) => (seconds === null || seconds === undefined ? "–" : clock.format(new Date(seconds * 1000)));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function series() {
    const element = document.getElementById("series");
    return element ? JSON.parse(element.dataset.series) : null;
  }

  function options(found, width) {
    const axis = { stroke: colour("--weak"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    return {
      width,
      height: 200,
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: (_, times) => times.map(timeOf) }, { ...axis, size: 60, values: (_, values) => values.map((value) => value.toLocaleString(undefined, { maximumSignificantDigits: 3 })) }],
      series: [{ label: "Time", value: (_, time) => timeOf(time) }, ...found.queues.map((queue, index) => ({
        label: queue.name.replace(/[\p{C}]/gu, "?").slice(0, 60),
        stroke: colour(`--series-${index + 1}`),
        width: 2,
        dash: index % 2 ? [6, 3] : undefined,
        spanGaps: false,
        points: { size: 6, filter: alone },
      }))],
    };
  }

  // A point between two gaps has no line, so it is drawn as a point.
  function alone(plot, index, areAllShown) {
    if (areAllShown) return null;
    const values = plot.data[index], isGap = (at) => values[at] === null || values[at] === undefined;
    const found = [...values.keys()].filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1));
    return found.length ? found : null;
  }

  const dataOf = (found, what) => [
    found.starts.map((start) => Date.parse(`${start.replace(" ", "T")}Z`) / 1000),
    ...found.queues.map((queue) => queue[what]),
  ];

  // Draw anew if the queues are others, or the theme or the width; else only the numbers.
  function draw(anew) {
    const found = series();
    if (!found) return;
    const key = found.queues.map((queue) => queue.name).join("\n");
    for (const place of document.querySelectorAll("[data-plot]")) {
      const known = plots.get(place), data = dataOf(found, place.dataset.plot);
      if (known && !anew && known.key === key) {
        known.plot.setData(data);
        continue;
      }
      known?.plot.destroy();
      plots.set(place, { key, plot: new uPlot(options(found, place.clientWidth), data, place) });
    }
  }

  draw(true);
  document.addEventListener("theme", () => draw(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  document.addEventListener("htmx:after:swap", () => draw(false));
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => draw(true), 200);
  });
})();
