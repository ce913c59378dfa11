// Asks the API every two seconds and draws what is new. Nothing here is ever parsed as HTML.

import { clock, draw, el, legend, short } from "/static/charts.js";

const POLL_MS = 2000;
const SPAN_S = 900;
const MAX_ROWS = 40;
const open = new Set(); // <details> that the reader opened
let drawn = "";
let last = null;
let charts = [];

const byId = (id) => document.getElementById(id);
const percent = (ratio) => `${Number((ratio * 100).toFixed(ratio > 0.99 ? 2 : 1))} %`;
const seconds = (s) => (s === 0 ? "0 s" : s < 1 ? `${short(s * 1000)} ms` : `${short(s)} s`);
const ago = (s) => (s < 90 ? `${Math.max(0, Math.round(s))} s ago` : `${Math.round(s / 60)} min ago`);

async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, signal: AbortSignal.timeout(8000) });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

function signal(found, form = short, unit = "") {
  if (!found || found.state === "unknown") {
    const why = found ? [found.reason, found.detail].filter(Boolean).join(": ") : "not read";
    return el("span", { class: "unknown", title: why }, "unknown");
  }
  const partial = found.coverage_ratio < 1 ? ` (${percent(found.coverage_ratio)} reported)` : "";
  return el("span", { title: `${found.source}, ${ago(found.age_s)}` },
    `${found.at_least ? "≥ " : ""}${form(found.value)}${unit}${partial}`);
}

function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, text);
}

function banner(kind, title, lines) {
  return el("div", { class: `banner ${kind}` }, el("strong", {}, title),
    lines.length ? el("ul", {}, lines.map((line) => el("li", {}, line))) : null);
}

function banners(state) {
  const pools = state.services.flatMap((s) => s.pools);
  const name = (pool) => `${pool.service}/${pool.pool}`;
  const out = [];
  if (!state.ready) out.push(banner("bad", "Not ready", state.reasons));
  const blind = pools.flatMap((p) => p.metrics_unknown.map((why) => `${name(p)}: ${why.replace(/^[a-z_]+(?=:|$)/, (code) => code.replaceAll("_", " "))}`));
  if (blind.length) out.push(banner("warn", "Metrics unknown: these pools are never shrunk meanwhile", blind));
  const broken = pools.flatMap((p) => p.violations.map((text) => `${name(p)}: ${text}`));
  if (broken.length) out.push(banner("warn", "Metric contract violated", broken));
  const asked = state.interventions.map((i) => `${i.service}/${i.pool}: ${i.kind}${i.replicas === null ? "" : ` at ${i.replicas} replicas`}`
    + ` until ${clock(i.expires_at_s, true)}, by ${i.origin}`);
  if (asked.length) out.push(banner("info", "Interventions in force", asked));
  byId("banners").replaceChildren(...out);
}

function header(state) {
  byId("status").replaceChildren(badge(state.ready ? "ready" : "not ready", state.ready ? "good" : "bad"));
  byId("version").textContent = `version ${state.version}`;
}

function meta() {
  if (!last) return;
  const { state, fetchedAt } = last;
  const now = state.now_s + (performance.now() - fetchedAt) / 1000;
  const parts = [];
  if (state.sequence === null) parts.push("no decision yet");
  else parts.push(`decision ${state.sequence}, ${ago(now - state.decided_at_s)}`);
  if (state.tick_duration_s !== null) parts.push(`made in ${seconds(state.tick_duration_s)}`);
  if (state.sequence !== null) parts.push(state.gateway_acked ? "gateway up to date" : "gateway not up to date");
  byId("meta").textContent = parts.join(" · ");
}

function named(list, name) {
  return list.find((s) => s.name === name)?.points ?? [];
}

function chart(title, entries, options) {
  const plot = el("div", { class: "plot" });
  charts.push(() => draw(plot, { ...options, label: title }));
  return el("figure", {}, el("h3", {}, title), legend(entries), plot);
}

// Draws the quantile that the policy has carried; the decision takes the lowest level that reaches it.
function loadChart(service, history, quantile, frame) {
  const { levels, points } = history.band;
  const low = points.map((p) => [p[0], p[1]]);
  const high = points.map((p) => [p[0], p.at(-1)]);
  const reaching = levels.findIndex((l) => l >= quantile);
  const middle = reaching < 0 ? levels.length - 1 : reaching;
  const percentile = (level) => `p${short(level * 100)}`;
  const entries = [["line", "load", "arrivals"]];
  const layers = [];
  if (points.length) {
    const span = `${percentile(levels[0])} to ${percentile(levels.at(-1))}`;
    entries.push(["fill", "band", `forecast ${span}`]);
    layers.push({ kind: "band", cls: "band", points: high, low });
    const name = `forecast ${percentile(levels[middle])}`;
    entries.push(["line", "band", `${name}, which is sized for`]);
    layers.push({ kind: "line", cls: "band", name, points: points.map((p) => [p[0], p[middle + 1]]) });
  }
  layers.push({ kind: "line", cls: "load", name: "arrivals", points: history.load.points });
  const end = Math.max(frame.end, points.at(-1)?.[0] ?? 0);
  return chart("Load and forecast, requests/s", entries, { ...frame, end, layers });
}

function replicaChart(pool, series, frame) {
  const ready = named(series, "ready");
  const starting = named(series, "starting").map(([when, n], i) => [when, n + (ready[i]?.[1] ?? 0), n]);
  const layers = [
    { kind: "area", cls: "ready", name: "ready", points: ready, steps: true },
    { kind: "area", cls: "starting", name: "starting", points: starting, low: ready, steps: true },
    { kind: "line", cls: "wanted", name: "wanted", points: named(series, "wanted"), steps: true },
    { kind: "line", cls: "asked", name: "asked", points: named(series, "asked"), steps: true },
  ];
  const entries = [["fill", "ready", "ready"], ["fill", "starting", "starting"], ["line", "asked", "asked"], ["line", "wanted", "wanted"]];
  return chart(`Replicas of ${pool}`, entries, { ...frame, layers, whole: true });
}

function sli(found, history, frame) {
  const kinds = { yes: ["met", "good"], no: ["missed", "bad"], unknown: ["unknown", "warn"] };
  const isLatency = found.indicator !== "availability";
  const points = isLatency ? named(history.quantiles_s, found.slo) : named(history.attained, found.slo);
  const plot = el("div", { class: "plot" });
  const layers = [{ kind: "line", cls: "load", name: isLatency ? `p${short(found.objective_ratio * 100)}` : "good", points }];
  const limit = isLatency ? (found.promised_s ?? found.threshold_s) : found.objective_ratio;
  if (limit !== null) layers.push({ kind: "limit", value: limit });
  // A share is drawn from below the worst that was seen, or ten times the allowed misses, up to 1.
  const worst = Math.min(1 - 10 * (1 - found.objective_ratio), ...points.map((p) => p[1]));
  const range = isLatency ? { form: seconds } : { form: percent, floor: Math.max(0, worst), ceiling: 1 };
  charts.push(() => draw(plot, { ...frame, ...range, height: 92, layers, label: `${found.slo} over time` }));
  const promise = isLatency ? `${percent(found.objective_ratio)} within ${seconds(limit)}` : `${percent(found.objective_ratio)} answered`;
  const lost = found.attained_ratio.reason === "not_a_number" ? "no request finished" : found.attained_ratio.reason?.replaceAll("_", " ");
  const good = isLatency ? `good; p${short(found.objective_ratio * 100)} is ` : "good";
  const why = [...new Set([lost, found.attained_ratio.detail])].filter(Boolean).join(": ");
  const said = found.met === "unknown" ? why : good;
  return el("div", { class: "sli" },
    el("div", { class: "head" }, el("h3", {}, found.slo), badge(...kinds[found.met]), el("small", {}, promise)),
    el("p", {}, el("span", { class: "big" }, signal(found.attained_ratio, percent)), el("small", {}, ` ${said}`),
      isLatency && found.met !== "unknown" ? signal(found.quantile_s, seconds) : null),
    plot,
    el("p", { class: "muted" }, `source: ${found.source || "none"}`));
}

function count(name, value) {
  const known = typeof value === "number" ? value : value.state === "value" ? value.value : null;
  const attributes = known === null ? { class: "none", title: value.reason } : {};
  return el("div", {}, el("b", attributes, known === null ? "unknown" : String(known)), el("small", {}, name));
}

function replicas(pool) {
  const key = `${pool.service}/${pool.pool}`;
  const kinds = { ready: "good", failed: "bad", starting: "warn" };
  const row = (r) => el("tr", {},
    el("td", {}, r.name), el("td", {}, badge(r.state, kinds[r.state] ?? "")), el("td", {}, r.node || "any"),
    ...["running_requests", "waiting_requests"].map((n) => el("td", { class: "num" }, signal(r.signals[n]))),
    el("td", { class: "num" }, signal(r.signals.kv_used_ratio, percent)),
    el("td", { class: "num" }, signal(r.signals.output_tokens_per_s)),
    el("td", {}, r.address || "not yet"));
  const made = el("details", { open: open.has(key) },
    el("summary", {}, `${pool.replicas.length} replica${pool.replicas.length === 1 ? "" : "s"}`),
    el("div", { class: "wide" }, el("table", {},
      el("thead", {}, el("tr", {}, ["replica", "state", "node"].map((h) => el("th", {}, h)),
        ["running", "waiting", "KV used", "output tokens/s"].map((h) => el("th", { class: "num" }, h)), el("th", {}, "address"))),
      el("tbody", {}, pool.replicas.map(row)))));
  made.addEventListener("toggle", () => (made.open ? open.add(key) : open.delete(key)));
  return made;
}

function verdict(decision) {
  const marks = { grow: ["▲ grow", "good"], shrink: ["▼ shrink", ""], hold: ["= hold", ""] };
  return badge(...(marks[decision.verdict] ?? [decision.verdict, ""]));
}

function poolPart(pool) {
  const d = pool.decision;
  const capacity = pool.capacity
    ? `one replica carries ${short(pool.capacity.requests_per_s)} requests/s at most (${pool.capacity.source}, bound by ${pool.capacity.binding}) `
      + `and is planned for ${short(pool.capacity.planned_requests_per_s)} (target utilisation ${percent(pool.capacity.planned_requests_per_s / pool.capacity.requests_per_s)}); `
      + `cold start p95 ${seconds(pool.capacity.cold_start_p95_s)} (${pool.capacity.cold_starts_seen || "none"} measured)`
    : "capacity of one replica unknown";
  return el("div", { class: "pool" },
    el("div", { class: "head" }, el("h3", {}, `Pool ${pool.pool}`), verdict(d), badge(d.binding.replaceAll("_", " ")),
      d.writes ? null : badge("advise only", "warn"),
      el("small", {}, `${pool.engine} on ${pool.gpus_per_replica} × ${pool.accelerator}, ${pool.min_replicas} to ${pool.max_replicas} replicas`)),
    el("div", { class: "counts" }, count("ready", d.ready_replicas), count("starting", d.starting_replicas),
      count("draining", d.draining_replicas), count("wanted", d.wanted_replicas), count("asked", d.asked_replicas),
      pool.states.failed ? count("failed", pool.states.failed) : null),
    el("p", { class: "sentence" }, d.sentence),
    el("p", { class: "muted" }, capacity),
    replicas(pool));
}

function servicePart(service, history, frame) {
  const forecast = service.forecast ? `forecast: ${service.forecast.method}, ${service.forecast.reason}` : "no forecast";
  return el("section", { class: "card" },
    el("div", { class: "head" }, el("h2", {}, service.service), el("small", {}, service.model),
      badge(service.mode, service.mode === "act" ? "" : "warn")),
    el("p", { class: "muted" }, "arrivals ", signal(service.signals.arrivals_per_s, short, "/s"),
      ", failed ", signal(service.signals.failed_per_s, short, "/s"),
      ", mean prompt ", signal(service.signals.prompt_tokens_mean, short, " tokens"),
      ", mean output ", signal(service.signals.output_tokens_mean, short, " tokens"), `; ${forecast}`),
    el("div", { class: "grid" }, loadChart(service, history, service.forecast_quantile, frame),
      service.pools.map((p) => replicaChart(p.pool, history.pools[p.pool] ?? [], frame))),
    el("div", { class: "slis" }, service.slis.map((s) => sli(s, history, frame))),
    service.pools.map(poolPart));
}

function decisionRows(decisions) {
  const rows = [];
  const newest = new Map();
  for (const d of decisions) {
    const pool = `${d.service}/${d.pool}`;
    const row = newest.get(pool);
    if (row && row.d.verdict === d.verdict && row.d.binding === d.binding && row.d.asked_replicas === d.asked_replicas) {
      row.times += 1;
      row.since = d.decided_at_s;
      continue;
    }
    const made = { d, pool, times: 1, since: d.decided_at_s };
    newest.set(pool, made);
    rows.push(made);
  }
  return rows.slice(0, MAX_ROWS).map(({ d, pool, times, since }) => el("li", {},
    el("time", { title: new Date(d.decided_at_s * 1000).toISOString() }, clock(d.decided_at_s, true)),
    el("span", {}, verdict(d), el("small", {}, ` ${pool}`)),
    el("span", { class: "sentence" }, d.sentence, times > 1 ? el("small", {}, ` (${times} times since ${clock(since, true)})`) : null)));
}

function redraw() {
  for (const again of charts) again();
}

function render(state, history, decisions) {
  header(state);
  banners(state);
  const first = Math.min(...history.services.flatMap((s) => s.load.points.slice(0, 1).map((p) => p[0])), state.now_s - 120);
  const frame = { start: Math.max(history.since_s, first), end: state.now_s, now: state.now_s };
  charts = [];
  const parts = state.services.map((service) => {
    const found = history.services.find((s) => s.service === service.service);
    return found ? servicePart(service, found, frame) : null;
  });
  byId("services").replaceChildren(...parts.filter(Boolean));
  byId("decisions-card").hidden = decisions.length === 0;
  byId("decisions").replaceChildren(...decisionRows(decisions));
  redraw();
}

async function turn() {
  try {
    const [state, history, decisions] = await Promise.all(
      [ask("/v1/state"), ask(`/v1/history?span_s=${SPAN_S}`), ask("/v1/decisions?limit=400")]);
    last = { state, fetchedAt: performance.now() };
    const version = JSON.stringify([state.sequence, state.reasons, state.started_at_s, state.interventions]);
    if (version !== drawn) {
      render(state, history, decisions.decisions);
      drawn = version;
    }
  } catch (error) {
    drawn = "";
    byId("status").replaceChildren(badge("no answer", "bad"));
    byId("banners").replaceChildren(banner("bad", "The controller does not answer; what is below is old", [String(error.message)]));
  }
  meta();
  setTimeout(turn, POLL_MS);
}

let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 150);
});
setInterval(meta, 1000);
turn();
