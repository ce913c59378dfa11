// Small SVG charts, drawn by hand. Every text goes through textContent; gaps in the data stay gaps.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 10, top: 8, bottom: 20 };
const GAP_FACTOR = 3.5; // points further apart than this many usual steps are not joined

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function clock(at, withSeconds = false) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (withSeconds) options.second = "2-digit";
  return new Date(at * 1000).toLocaleTimeString([], options);
}

export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10000) return `${(value / 1000).toFixed(0)}k`;
  if (size >= 100) return value.toFixed(0);
  if (size >= 1) return String(Number(value.toFixed(size >= 10 ? 1 : 2)));
  return String(Number(value.toPrecision(2)));
}

function niceTop(value, whole) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 4, 5, 8, 10].find((m) => m * power >= value) ?? 10;
  const top = step * power;
  return whole ? Math.max(2, Math.ceil(top / 2) * 2) : top;
}

function timeTicks(start, end, room) {
  const steps = [30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
  const step = steps.find((s) => (end - start) / s <= Math.max(2, room)) ?? 14400;
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) ticks.push(at);
  return ticks;
}

// Usual distance between points: the median, so that one gap does not widen what counts as a gap.
function usualStep(points) {
  const steps = points.slice(1).map((p, i) => p[0] - points[i][0]).sort((a, b) => a - b);
  return steps.length ? steps[Math.floor(steps.length / 2)] : Infinity;
}

function runs(points) {
  const limit = usualStep(points) * GAP_FACTOR;
  const out = [];
  for (const point of points) {
    const run = out.at(-1);
    if (run && point[0] - run.at(-1)[0] <= limit) run.push(point);
    else out.push([point]);
  }
  return out;
}

function path(run, x, y, steps) {
  let d = "";
  run.forEach(([at, value], i) => {
    if (i === 0) d += `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    else if (steps) d += `H${x(at).toFixed(1)}V${y(value).toFixed(1)}`;
    else d += `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return d;
}

function area(run, x, y, steps, base) {
  const lower = run.map(([at]) => [at, base(at)]).reverse();
  let d = path(run, x, y, steps);
  // Stepped areas go back along the lower edge with the same steps, mirrored: first down, then across.
  lower.forEach(([at, value], i) => {
    if (i === 0) d += `V${y(value).toFixed(1)}`;
    else if (steps) d += `V${y(value).toFixed(1)}H${x(at).toFixed(1)}`;
    else d += `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return `${d}Z`;
}

function at(points, when) {
  let found;
  for (const point of points) {
    if (point[0] > when) break;
    found = point;
  }
  return found;
}

/* Draw into `host`. options: start, end, now, height, whole (y in whole numbers), form (value to text), label,
   floor and ceiling (fixed y range),
   layers: [{kind: "line"|"area"|"band"|"limit", cls, name, points, steps, low, value}] back to front. */
export function draw(host, options) {
  const width = Math.max(220, host.clientWidth || 600);
  const { start, end, now, height = 170, whole = false, form = short, floor = 0 } = options;
  const right = width - MARGIN.right;
  const bottom = height - MARGIN.bottom;
  const tops = options.layers.flatMap((l) => (l.kind === "limit" ? [l.value] : l.points.map((p) => p[1])));
  const top = options.ceiling ?? niceTop(Math.max(0, ...tops.filter(Number.isFinite)) * 1.04, whole);
  const x = (when) => MARGIN.left + ((when - start) / (end - start)) * (right - MARGIN.left);
  const y = (value) => bottom - ((Math.max(floor, Math.min(value, top)) - floor) / (top - floor)) * (bottom - MARGIN.top);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label });

  const rows = whole && top <= 4 ? top : height < 110 ? 2 : 4;
  for (let i = 0; i <= rows; i += 1) {
    const value = floor + ((top - floor) / rows) * i;
    if (whole && !Number.isInteger(value)) continue;
    svg.append(shape("line", { class: i ? "gridline" : "axis", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(shape("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, form(value)));
  }
  for (const when of timeTicks(start, end, (right - MARGIN.left) / 90)) {
    if (x(when) < MARGIN.left + 8 || x(when) > right - 14) continue;
    svg.append(shape("text", { x: x(when), y: height - 4, "text-anchor": "middle" }, clock(when, end - start < 240)));
  }
  for (const layer of options.layers) {
    if (layer.kind === "limit") {
      svg.append(shape("line", { class: "limit", x1: MARGIN.left, x2: right, y1: y(layer.value), y2: y(layer.value) }));
      continue;
    }
    const inside = layer.points.filter((p) => p[0] >= start && p[0] <= end);
    for (const run of runs(inside)) {
      if (layer.kind !== "line") {
        const base = layer.low ? (when) => at(layer.low, when)?.[1] ?? 0 : () => 0;
        svg.append(shape("path", { class: `f-${layer.cls}`, d: area(run, x, y, layer.steps, base) }));
      }
      if (layer.kind === "line") {
        if (run.length === 1) {
          svg.append(shape("circle", { class: `s-${layer.cls}`, fill: "none", "stroke-width": 2, cx: x(run[0][0]), cy: y(run[0][1]), r: 1 }));
        }
        svg.append(shape("path", { class: `s-${layer.cls}`, fill: "none", "stroke-width": 2, d: path(run, x, y, layer.steps) }));
      }
    }
  }
  if (now < end - 1) svg.append(shape("line", { class: "now", x1: x(now), x2: x(now), y1: MARGIN.top, y2: bottom }));
  const cursor = shape("line", { class: "cursor", y1: MARGIN.top, y2: bottom, visibility: "hidden" });
  svg.append(cursor);
  const tip = el("div", { class: "tip", hidden: true });
  host.replaceChildren(svg, tip);
  follow(host, svg, cursor, tip, { x, start, end, right, form, layers: options.layers });
}

function follow(host, svg, cursor, tip, { start, end, right, form, layers, x }) {
  const hide = () => {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = event.clientX - box.left;
    const when = start + ((place - MARGIN.left) / (right - MARGIN.left)) * (end - start);
    if (when < start || when > end) return hide();
    const named = layers.filter((l) => l.name && l.points);
    const lines = named.map((layer) => {
      const found = at(layer.points, when);
      const fresh = found && when - found[0] <= usualStep(layer.points) * GAP_FACTOR;
      return el("div", {}, `${layer.name} ${fresh ? form(found[2] ?? found[1]) : "unknown"}`);
    });
    tip.replaceChildren(el("strong", {}, clock(when, true)), ...lines);
    tip.hidden = false;
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", x(when));
    cursor.setAttribute("x2", x(when));
    const left = place > box.width / 2 ? place - tip.offsetWidth - 12 : place + 12;
    tip.style.left = `${Math.max(0, left)}px`;
  });
}

export function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([kind, cls, name]) => {
    const svg = shape("svg", { viewBox: "0 0 18 10", "aria-hidden": "true" });
    if (kind === "fill") svg.append(shape("rect", { class: `f-${cls}`, width: 18, height: 10, rx: 2 }));
    else if (kind === "limit") svg.append(shape("line", { class: "limit", x1: 0, x2: 18, y1: 5, y2: 5 }));
    else svg.append(shape("line", { class: `s-${cls}`, x1: 0, x2: 18, y1: 5, y2: 5, "stroke-width": 2 }));
    return el("li", {}, svg, name);
  }));
}
