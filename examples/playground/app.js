// The page: its controls, its session with the server, and what it shows.

import { Chart } from "/chart.js";
import { Lane } from "/lane.js";
import { lessons } from "/lessons.js";
import { begin, isAwaited, isManual, now, tick, until } from "/time.js";

const $ = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const lanes = [new Lane("token-bucket", "Token bucket"), new Lane("fixed-window", "Fixed window")];
const charts = lanes.map((lane, nth) => new Chart($(`#${lane.name} .chart`), lane, nth === 1));
const numbers = $("form.numbers");
const sliders = Object.fromEntries(all("input[type=range]").map((input) => [input.name, input]));
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");

let socket;
let session; // the name of this tab's session
let ids = 0;
let ready = Promise.resolve(); // settled once the numbers are known to both sides
let settings = {}; // as the sliders say
let applied = 0; // how often the server has taken them
let lesson = 0; // the number of the lesson that runs; another number ends it
let isSteady = 0;

// The session.

const listeners = new Map(); // by the event of the server that they wait for

/** The next event of this name. */
const next = (event) => new Promise((heard) => listeners.set(event, heard));

function connect() {
  socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/socket`);
  socket.onmessage = ({ data }) => hear(JSON.parse(data));
  socket.onclose = () => {
    session = undefined;
    stop();
    say("The server does not answer. Start it again; the page will notice.");
    setTimeout(connect, 1_000);
  };
}

function hear(event) {
  const lane = lanes.find((lane) => lane.name === event.lane);
  if (event.event === "session") {
    session = event.name;
    begin(event.now / 1000);
    for (const lane of lanes) lane.clear();
    ready = apply();
  } else if (event.event === "decided") {
    const mark = lane.decided(event);
    show(lane, mark);
    announce();
    // Another client has sent it, such as `curl`: ask again what is left.
    if (!mark.predicted) ready = look();
  } else if (event.event === "ran") {
    const mark = lane.ran(event);
    if (mark) show(lane, { ...mark, event });
  } else if (event.event === "problem") {
    $("#hint").textContent = event.text;
  }
  listeners.get(event.event)?.(event);
  listeners.delete(event.event);
  countPending();
  if (isCalm.matches || isManual) render();
}

const order = (what) => socket.send(JSON.stringify(what));

/** Sets the numbers of the sliders on the server, and asks what is left under them. */
async function apply() {
  $("#hint").textContent = "";
  const { rate, period, capacity, max_reserved, queue, shards, cost } = settings;
  const answer = Promise.race([next("settings"), next("problem")]);
  order({ settings: { rate, period_ms: period * 1000, capacity, max_reserved, queue_ms: queue * 1000, shards, cost } });
  const { event, quotas } = await answer;
  if (event === "settings") {
    const shown = settings.kind === "fixed-window" ? quotas[1] : quotas[0];
    $("#numbers").textContent = shown;
  }
  await look();
  applied += 1;
  document.documentElement.dataset.applied = applied;
}

async function look() {
  await Promise.all(lanes.map((lane) => lane.look(`/${session}/${lane.name}/limits`)));
  const { uncertainty } = lanes[0].bucket;
  $("#clock").textContent = isManual ? "stepped by hand" : `known to ±${uncertainty.toFixed(1)} ms`;
  $("#curl").textContent = `curl -i ${location.origin}/${session}/${shownLanes()[0].name}`;
  render();
}

const shownLanes = () => lanes.filter((lane) => ["both", lane.name].includes(settings.kind));

/** Sends so many requests to each limit that is shown. */
async function send(count) {
  await ready;
  if (!session) return;
  for (const lane of shownLanes()) {
    const batch = Array.from({ length: count }, () => (ids += 1));
    for (const id of batch) lane.predict(id);
    order({ send: { lane: lane.name, ids: batch } });
  }
  countPending();
}

async function reset() {
  await ready;
  const done = next("reset");
  order("reset");
  await done;
  // As if nothing had happened before.
  for (const lane of lanes) lane.clear();
  await (ready = look());
}

let idle = [];

/** Once every request that was sent is decided. */
const settled = () => new Promise((wake) => {
  idle.push(wake);
  countPending();
});

function countPending() {
  if (lanes.every((lane) => lane.sent.size === 0)) {
    for (const wake of idle) wake();
    idle = [];
  }
}

// The controls.

function readSettings() {
  const values = Object.fromEntries(Object.entries(sliders).map(([name, input]) => [name, Number(input.value)]));
  settings = { ...values, kind: new FormData(numbers).get("kind") };
  for (const input of Object.values(sliders)) {
    const { unit = "", zero } = input.dataset;
    const shown = zero && input.value === "0" ? zero : `${input.value}${unit && ` ${unit}`}`;
    input.previousElementSibling.textContent = shown;
    input.setAttribute("aria-valuetext", shown);
    input.style.setProperty("--fill", `${((input.value - input.min) / (input.max - input.min)) * 100}%`);
  }
  $("#burst-size").textContent = settings.burst;
  $("#steady-rate").textContent = settings.steady;
  sliders.max_reserved.disabled = settings.queue === 0;
  document.body.dataset.kind = settings.kind;
}

let delay;

function change(event) {
  stop();
  say(WELCOME);
  readSettings();
  clearTimeout(delay);
  // A slider that is moved says so many times a second.
  delay = setTimeout(() => (ready = apply()), 120);
}

numbers.addEventListener("input", change);
sliders.burst.addEventListener("input", readSettings);
sliders.steady.addEventListener("input", readSettings);
numbers.addEventListener("submit", (event) => event.preventDefault());

function stop() {
  lesson += 1;
  isSteady = 0;
  $("#steady").setAttribute("aria-pressed", "false");
  for (const button of all(".lessons button")) button.removeAttribute("aria-current");
}

$("#one").addEventListener("click", () => send(1));
$("#burst").addEventListener("click", () => send(settings.burst));
$("#reset").addEventListener("click", () => {
  stop();
  reset();
});

$("#steady").addEventListener("click", async () => {
  if (isSteady) return stop();
  stop();
  const mine = (isSteady = lesson);
  $("#steady").setAttribute("aria-pressed", "true");
  for (let time = now(); isSteady === mine; await until(time)) {
    await send(1);
    time = Math.max(now(), time + 1000 / settings.steady);
  }
});

/** What a lesson can do. Each step ends it if the visitor has done something else. */
function play(mine) {
  const check = () => {
    if (lesson !== mine) throw new Error("stopped");
  };
  const step = (act) => async (...args) => {
    check();
    await act(...args);
    check();
  };
  const set = async (values) => {
    for (const [name, value] of Object.entries(values)) {
      if (sliders[name]) sliders[name].value = value;
      else $(`input[name=${name}][value=${value}]`).checked = true;
    }
    readSettings();
    await (ready = apply());
  };
  return {
    lanes, say, set: step(set), reset: step(reset), look: step(look), send: step(send),
    settled: step(settled), until: step(until),
  };
}

for (const [name, run] of Object.entries(lessons)) {
  const button = $(`#lesson-${name}`);
  button.addEventListener("click", async () => {
    stop();
    const mine = lesson;
    button.setAttribute("aria-current", "true");
    try {
      await ready;
      await run(play(mine));
    } catch (error) {
      if (error.message !== "stopped") throw error;
    }
    if (lesson === mine) button.removeAttribute("aria-current");
  });
}

// What it shows.

const WELCOME = $("#note").textContent;

function say(text) {
  $("#note").textContent = text;
}

const WORDS = { 200: "OK", 429: "Too Many Requests", 503: "Service Unavailable" };
/** Rounded up, so that nothing seems to be over before it is. */
const seconds = (millis) => (millis < 10_000 ? `${(Math.ceil(millis / 100) / 10).toFixed(1)} s` : `${Math.ceil(millis / 1000)} s`);

function verdictText(verdict, wait) {
  if (wait === null) return "refused, it can never fit";
  return { admitted: "admitted", reserved: `waits ${seconds(wait)}`, refused: `refused for ${seconds(wait)}` }[verdict];
}

/** Shows a response of a lane, and the row of its request. */
function show(lane, { at, verdict, predicted, agrees, event }) {
  const answer = $(`.answer[data-lane=${lane.name}]`);
  const head = event.status ? `${event.status} ${WORDS[event.status] ?? ""}` : "… waits in the queue";
  const fields = (event.fields ?? []).map(([name, value]) => `\n${name}: ${value}`).join("");
  $(".response", answer).textContent = head + fields;
  $(".response", answer).dataset.verdict = event.status === 200 ? "admitted" : verdict;
  if (event.event === "ran") return;

  const told = verdictText(verdict, event.wait === null ? null : event.wait / 1000);
  const known = predicted ? verdictText(predicted.verdict, predicted.wait) : "not sent by this page";
  $(".predicted", answer).textContent = known;
  $(".answered", answer).textContent = told;
  const sum = lane.agreed + lane.differed;
  const right = `${lane.differed ? `${lane.agreed} of` : "all"} ${sum} predicted right`;
  // Of shards, the browser knows the sum, and not which two of them a request draws.
  const isEstimate = lane.bucket.quota.shards > 1;
  $(".agreement", answer).textContent = !sum ? "nothing sent yet" : isEstimate ? `${right} (estimates)` : right;
  $(".agreement", answer).dataset.differed = isEstimate ? "" : lane.differed;
  const row = $("#rows").insertRow(0);
  const clock = new Date(at).toISOString().slice(14, 23);
  for (const cell of [clock, lane.title, known, told, String(Math.max(0, Math.floor(lane.level(at))))]) {
    row.insertCell().textContent = cell;
  }
  row.className = verdict;
  if (agrees === false) row.classList.add("differs");
  while ($("#rows").rows.length > 40) $("#rows").deleteRow(40);
}

let spoken = 0;
let silence;
let since = lanes.map((lane) => ({ ...lane.counts }));

/** Tells a screen reader what became of the requests since the last time, every two seconds. */
function announce() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    spoken = performance.now();
    const parts = lanes.map((lane, nth) => {
      const more = (verdict) => lane.counts[verdict] - since[nth][verdict];
      const told = [["admitted", "admitted"], ["reserved", "queued"], ["refused", "refused"]]
        .filter(([verdict]) => more(verdict)).map(([verdict, word]) => `${more(verdict)} ${word}`);
      return told.length ? `${lane.title}: ${told.join(", ")}.` : "";
    });
    since = lanes.map((lane) => ({ ...lane.counts }));
    $("#live").textContent = parts.join(" ").trim();
  }, Math.max(300, 2_000 - (performance.now() - spoken)));
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function countdown({ verdict, wait }) {
  if (wait === null) return "never, it costs too much";
  if (verdict === "admitted") return "now";
  return verdict === "reserved" ? `waits ${seconds(wait)}` : `in ${seconds(wait)}`;
}

function gainText({ step, gain, token }) {
  const amount = (tokens) => `${Math.round(tokens * 10) / 10} ${tokens === 1 ? "token" : "tokens"}`;
  if (step > 1) return `gains ${amount(gain / token)} every ${step / 1e6}\u00a0s, at once`;
  return `gains a token every ${Math.round(token / gain / 1e4) / 100}\u00a0s, bit by bit`;
}

let labelled = 0;

function render() {
  if (!lanes.every((lane) => lane.bucket && lane.states.length)) return;
  const span = Math.min(60_000, Math.max(14_000, settings.period * 4_000));
  const isNarrow = innerWidth < 700;
  const [past, future] = isNarrow ? [span * 0.45, span * 0.25] : [span * 0.65, span * 0.35];
  const queues = settings.queue > 0;
  const isLabelDue = performance.now() - labelled > 1_000;
  for (const [nth, lane] of lanes.entries()) {
    const element = $(`#${lane.name}`);
    if (!shownLanes().includes(lane)) continue;
    const level = lane.level(lane.serverNow());
    const whole = Math.floor(level);
    const { bucket, quota } = lane.bucket;
    put($(".left-now", element), String(whole).replace("-", "−"));
    put($(".of", element), whole < 0 ? "owed" : `of ${quota.capacity} left`);
    put($(".gain", element), gainText(bucket));
    put($(".countdown", element), countdown(lane.bucket.predict(undefined, now())));
    const isLast = settings.kind !== "both" || nth === 1;
    charts[nth].hasAxis = isLast;
    charts[nth].draw({ past, future, queues, deepest: settings.max_reserved });
    if (isLabelDue) {
      const recent = lane.marks.filter((mark) => mark.at > lane.serverNow() - past);
      const of = (verdict) => recent.filter((mark) => mark.verdict === verdict).length;
      charts[nth].canvas.setAttribute("aria-label",
        `${lane.title}: ${whole} of ${quota.capacity} tokens. In the last ${Math.round(past / 1000)} seconds ` +
        `${of("admitted")} admitted, ${of("reserved")} queued, ${of("refused")} refused.`);
    }
  }
  if (isLabelDue) labelled = performance.now();
}

function animate() {
  render();
  // Without motion, the page still shows each second and each answer.
  if (isCalm.matches) setTimeout(animate, 1_000);
  else requestAnimationFrame(animate);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.readColors();
  render();
});

// A page that is left gives its session up, also if the browser keeps it for the way back.
addEventListener("pagehide", () => {
  socket.onclose = null;
  socket.close();
});
addEventListener("pageshow", ({ persisted }) => persisted && connect());

readSettings();
connect();
if (isManual) {
  window.playground = {
    lanes,
    render,
    tick: async (millis) => (await tick(millis), render()),
    // Everything that was sent is decided, and a lesson does nothing until time passes.
    isIdle: () => lanes.every((lane) => lane.sent.size === 0) && (isAwaited() || !$(".lessons [aria-current]")),
  };
  addEventListener("resize", render);
} else {
  animate();
}
