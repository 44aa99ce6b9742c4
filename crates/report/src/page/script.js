// SPDX-License-Identifier: Apache-2.0
// Hover and zoom of charts. The page is complete without this script: charts have titles, and tables have the values.
(() => {
"use strict";
// Distance at which a value is found, CSS pixels.
const REACH = 24;
// Factor of one zoom step, and the largest factor.
const STEP = 1.6;
const LARGEST = 12;
// Shortest drag that selects an area, CSS pixels.
const DRAG = 6;
// WAI-ARIA 1.2, aria-keyshortcuts: the key + has the name Plus.
const KEYS = "ArrowLeft ArrowRight Home End Plus - 0 Escape";

const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");

const limited = (value, low, high) => Math.max(low, Math.min(high, value));

// Returns an area of the shape of `whole`, inside of it, around a centre.
const area = (whole, factor, x, y) => {
  const width = whole.width / factor;
  const height = whole.height / factor;
  return {
    x: limited(x - width / 2, whole.x, whole.x + whole.width - width),
    y: limited(y - height / 2, whole.y, whole.y + whole.height - height),
    width,
    height,
  };
};

const distance = (box, x, y) => {
  const dx = Math.max(box.x - x, 0, x - box.x - box.width);
  const dy = Math.max(box.y - y, 0, y - box.y - box.height);
  return Math.hypot(dx, dy);
};

const middle = (box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });

// Returns the values of a chart in their order. Their titles become text of the tip, so that browsers do not show them twice.
const takeValues = (svg) => [...svg.querySelectorAll("title")].map((title) => {
  const node = title.parentNode;
  const text = title.textContent;
  title.remove();
  node.setAttribute("data-value", text);
  return { node, text, box: null };
});

// Returns functions that keep the labels of axes at the edges of the chart while it is zoomed.
const takeLabels = (svg) => {
  const labels = [...svg.children].filter((child) => child.matches("text.tick, text.axis"));
  // Values are drawn below the labels.
  svg.append(...labels);
  return labels.map((label) => {
    const turned = /^translate\(([-\d.]+) ([-\d.]+)\) (.*)$/.exec(label.getAttribute("transform") || "");
    if (turned) {
      const [, x, y, rest] = turned;
      return (across, up) => label.setAttribute("transform", `translate(${across(Number(x))} ${up(Number(y))}) ${rest}`);
    }
    const x = Number(label.getAttribute("x"));
    const y = Number(label.getAttribute("y"));
    const isTick = label.matches(".tick");
    const isLeft = label.getAttribute("text-anchor") === "end";
    return (across, up) => {
      if (!isTick || isLeft) label.setAttribute("x", across(x));
      if (!isTick || !isLeft) label.setAttribute("y", up(y));
    };
  });
};

const start = (svg) => {
  const base = svg.viewBox.baseVal;
  const whole = { x: base.x, y: base.y, width: base.width, height: base.height };
  const values = takeValues(svg);
  const labels = takeLabels(svg);
  let view = whole;
  let current = null;
  let drag = null;

  const factor = () => whole.width / view.width;
  const pixel = () => view.width / (svg.getBoundingClientRect().width || view.width);
  // Boxes exist once the chart is visible, and belong to the whole chart.
  const box = (value) => (value.box ??= value.node.getBBox());

  const place = (event) => {
    const frame = svg.getBoundingClientRect();
    return {
      x: view.x + (event.clientX - frame.left) * pixel(),
      y: view.y + (event.clientY - frame.top) * pixel(),
    };
  };

  const hide = () => {
    if (!current) return;
    current.node.classList.remove("current");
    current = null;
    tip.textContent = "";
  };

  const showAt = (left, top) => {
    const size = tip.getBoundingClientRect();
    const page = document.documentElement;
    const x = limited(left + 14, 4, Math.max(4, page.clientWidth - size.width - 4));
    const y = limited(top - size.height - 10, 4, Math.max(4, page.clientHeight - size.height - 4));
    tip.style.left = `${x + window.scrollX}px`;
    tip.style.top = `${y + window.scrollY}px`;
  };

  const select = (value, left, top) => {
    if (current !== value) {
      hide();
      current = value;
      value.node.classList.add("current");
      tip.textContent = value.text;
    }
    showAt(left, top);
  };

  const nearest = ({ x, y }) => {
    let found = null;
    let least = REACH * pixel();
    for (const value of values) {
      const centre = middle(box(value));
      const away = distance(box(value), x, y);
      // Of boxes that overlap, the one whose centre is nearest.
      const score = away + Math.hypot(centre.x - x, centre.y - y) / 1000;
      if (away <= REACH * pixel() && score < least) {
        least = score;
        found = value;
      }
    }
    return found;
  };

  const show = (next) => {
    view = next;
    const isZoomed = factor() > 1.001;
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    svg.classList.toggle("zoomed", isZoomed);
    svg.style.setProperty("--zoom", String(1 / factor()));
    const across = (x) => view.x + (x - whole.x) / factor();
    const up = (y) => view.y + (y - whole.y) / factor();
    for (const label of labels) label(across, up);
    less.disabled = !isZoomed;
    reset.disabled = !isZoomed;
    more.disabled = factor() > LARGEST / 1.001;
  };

  const zoom = (by) => {
    const kept = current;
    const centre = middle(kept ? box(kept) : view);
    hide();
    show(area(whole, limited(factor() * by, 1, LARGEST), centre.x, centre.y));
    if (kept && document.activeElement === svg) go(values.indexOf(kept));
  };

  const unzoom = () => {
    hide();
    show(whole);
  };

  // Selects a value by its place in the order, and moves the view to it.
  const go = (index) => {
    const value = values[limited(index, 0, values.length - 1)];
    if (!value) return;
    const centre = middle(box(value));
    const isInside = distance(view, centre.x, centre.y) === 0;
    if (!isInside) show(area(whole, factor(), centre.x, centre.y));
    const frame = svg.getBoundingClientRect();
    select(value, frame.left + (centre.x - view.x) / pixel(), frame.top + (centre.y - view.y) / pixel());
  };

  const keys = {
    ArrowRight: () => go(values.indexOf(current) + 1),
    ArrowLeft: () => go(current ? values.indexOf(current) - 1 : values.length - 1),
    Home: () => go(0),
    End: () => go(values.length - 1),
    "+": () => zoom(STEP),
    "=": () => zoom(STEP),
    "-": () => zoom(1 / STEP),
    "0": unzoom,
    Escape: hide,
  };

  const button = (text, name, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", `${name}: ${svg.getAttribute("aria-label")}`);
    made.addEventListener("click", act);
    return made;
  };
  const more = button("+", "Zoom in", () => zoom(STEP));
  const less = button("−", "Zoom out", () => zoom(1 / STEP));
  const reset = button("Whole", "Whole chart", unzoom);
  const tools = document.createElement("div");
  tools.className = "tools";
  tools.append(more, less, reset);
  svg.after(tools);

  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-keyshortcuts", KEYS);
  svg.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  svg.addEventListener("blur", hide);
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { at: place(event), left: event.clientX, top: event.clientY, isMoved: false };
  });
  svg.addEventListener("pointermove", (event) => {
    if (drag && Math.hypot(event.clientX - drag.left, event.clientY - drag.top) >= DRAG) {
      if (!drag.isMoved) svg.setPointerCapture(event.pointerId);
      drag.isMoved = true;
      hide();
      if (factor() > 1.001) {
        // The place that was under the pointer stays under it.
        const now = place(event);
        const centre = middle(view);
        show(area(whole, factor(), centre.x + drag.at.x - now.x, centre.y + drag.at.y - now.y));
        drag.isPan = true;
      }
      return;
    }
    const found = nearest(place(event));
    if (found) select(found, event.clientX, event.clientY);
    else hide();
  });
  svg.addEventListener("pointerup", (event) => {
    const done = drag;
    drag = null;
    const end = place(event);
    if (done && !done.isMoved) {
      // A touch without a move.
      const found = nearest(end);
      if (found) select(found, event.clientX, event.clientY);
    }
    if (!done || !done.isMoved || done.isPan) return;
    const wanted = Math.min(whole.width / Math.abs(end.x - done.at.x), whole.height / Math.abs(end.y - done.at.y));
    show(area(whole, limited(wanted, 1, LARGEST), (end.x + done.at.x) / 2, (end.y + done.at.y) / 2));
  });
  svg.addEventListener("pointercancel", () => {
    drag = null;
    hide();
  });
  svg.addEventListener("pointerleave", (event) => {
    if (!drag && event.pointerType === "mouse") hide();
  });
  svg.addEventListener("dblclick", unzoom);
  window.addEventListener("beforeprint", unzoom);
  show(whole);
};

document.addEventListener("DOMContentLoaded", () => {
  document.body.append(tip);
  for (const svg of document.querySelectorAll("svg.chart")) start(svg);
  document.documentElement.classList.add("live");
});
})();
