"""The page's script: under the pointer, or with the arrow keys, a chart's legend shows step and values."""

SCRIPT = """
"use strict";
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const {low, high, series} = JSON.parse(figure.dataset.chart);
  const plot = figure.querySelector(".plot"), cursor = figure.querySelector(".cursor");
  const at = figure.querySelector(".at b"), values = figure.querySelectorAll(".value");
  const steps = [...new Set(series.flatMap(points => points.map(point => point[0])))].sort((a, b) => a - b);
  const number = value => Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
  const until = (points, step) => { // the last point that isn't after the step
    let left = 0, right = points.length;
    while (left < right) {
      const middle = (left + right) >> 1;
      if (points[middle][0] <= step) left = middle + 1; else right = middle;
    }
    return left - 1;
  };
  let place = steps.length - 1;
  const show = step => {
    at.textContent = step.toLocaleString("en");
    series.forEach((points, index) => {
      const point = points[until(points, step)];
      const later = point && point[0] !== step ? " at " + point[0].toLocaleString("en") : "";
      values[index].textContent = point ? number(point[1]) + later : "–";
    });
    const across = 100 * (step - low) / (high - low) + "%";
    cursor.setAttribute("x1", across);
    cursor.setAttribute("x2", across);
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    place = steps.length - 1;
    show(steps[place]);
  };
  const go = index => {
    place = Math.max(0, Math.min(steps.length - 1, index));
    cursor.setAttribute("visibility", "visible");
    show(steps[place]);
  };
  const follow = event => {
    const box = plot.getBoundingClientRect();
    const step = low + (high - low) * (event.clientX - box.left) / box.width;
    const after = steps.findIndex(known => known >= step);
    if (after === -1) go(steps.length - 1);
    else if (after === 0) go(0);
    else go(step - steps[after - 1] < steps[after] - step ? after - 1 : after);
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length}[event.key];
    if (move === undefined) return;
    event.preventDefault();
    go(place + move);
  });
}
"""
