(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const config = { displayModeBar: false, responsive: true, scrollZoom: false };
  const boxes = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Set();

  // What is printed is scaled as a picture: for that an SVG needs to know its own size.
  function measure(box) {
    for (const svg of box.querySelectorAll(".main-svg")) {
      const wide = svg.getAttribute("width"), high = svg.getAttribute("height");
      svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
      box.style.setProperty("--wide", wide);
      box.style.setProperty("--high", high);
    }
  }

  function draw(box) {
    if (drawn.has(box)) return;
    drawn.add(box);
    const { data, layout } = charts[Number(box.dataset.chart)];
    Plotly.newPlot(box, data, layout, config);
    measure(box);
    box.on("plotly_afterplot", () => measure(box));
    if (chosen) dim(box);
  }

  // What is in sight first, the rest in the pauses: the page opens at once however long it is.
  function drawNext(left) {
    const box = left.shift();
    if (!box) { document.documentElement.dataset.drawn = "all"; return; }
    draw(box);
    setTimeout(() => drawNext(left), 0);
  }

  // Choosing a controller in any legend sets it off everywhere; choosing it again takes that back.
  let chosen = "";
  function dim(box) {
    const traces = box.data || [];
    const opacity = traces.map(t => (!chosen || !t.meta || t.meta === chosen ? 1 : 0.12));
    if (traces.length) Plotly.restyle(box, { opacity });
  }
  for (const key of document.querySelectorAll(".key")) {
    key.addEventListener("click", () => {
      chosen = chosen === key.dataset.key ? "" : key.dataset.key;
      for (const other of document.querySelectorAll(".key"))
        other.setAttribute("aria-pressed", String(other.dataset.key === chosen));
      drawn.forEach(dim);
    });
  }

  addEventListener("beforeprint", () => boxes.forEach(draw));
  const inSight = boxes.filter(box => box.getBoundingClientRect().top < innerHeight);
  inSight.forEach(draw);
  document.documentElement.dataset.drawn = "in-sight";
  setTimeout(() => drawNext(boxes.filter(box => !drawn.has(box))), 0);
})();
