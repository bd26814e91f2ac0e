"use strict";
// Shows one key, or all; and the release that is pointed at. Without it the page has all there is.
for (const hidden of document.querySelectorAll(".script")) hidden.hidden = false;

const figures = [...document.querySelectorAll("#keys > figure")];
const choice = document.getElementById("key");
const together = document.getElementById("together");

if (choice) {
  choice.addEventListener("change", () => {
    const one = choice.value === "" ? null : Number(choice.value);
    figures.forEach((figure, i) => { figure.hidden = one !== null && i !== one; });
    for (const mark of together ? together.querySelectorAll("[data-key]") : []) {
      mark.classList.toggle("dim", one !== null && Number(mark.dataset.key) !== one);
    }
  });
}

for (const chart of document.querySelectorAll("svg.points")) {
  const { x, y, t } = JSON.parse(chart.dataset.points);
  const cursor = chart.querySelector(".cursor");
  const [line, dot] = cursor.children;
  const told = chart.closest("figure").querySelector("output");
  let at = x.length - 1;
  const show = (i) => {
    at = Math.max(0, Math.min(x.length - 1, i));
    line.setAttribute("transform", `translate(${x[at]} 0)`);
    dot.setAttribute("transform", `translate(${x[at]} ${y[at]})`);
    cursor.classList.add("on");
    told.textContent = t[at];
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const place = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    let low = 0, high = x.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < place) low = middle + 1; else high = middle;
    }
    show(low > 0 && place - x[low - 1] < x[low] - place ? low - 1 : low);
  });
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -x.length, End: x.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    show(at + by);
  });
  const leave = () => { cursor.classList.remove("on"); told.textContent = ""; };
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("blur", leave);
}
