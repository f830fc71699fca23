// Predicts what a limit of Tollgate will answer. An ES module without dependencies.

/** @typedef {{verdict: "admitted"|"reserved"|"refused", wait: bigint, value: bigint, ts: bigint}} Charged */

/**
 * The formula, in whole numbers: takes `cost` tokens at `now`, as `calculate` does.
 * `value` and `ts` are the state with the cost taken; keep it unless the verdict is `refused`.
 * @param {Record<"step"|"gain"|"token"|"capacity"|"floor", number>} numbers `bucket` of the answer;
 *   where a calendar says when windows begin, also its `windows`; and `from_first_use`, if it has that
 * @param {{value: number, ts: number, kept?: object}} state units, and the microsecond at which there
 *   were as many; `kept` of the answer, if it has that
 * @param {number|bigint} now microseconds since the Unix epoch
 * @param {number|bigint} cost tokens
 * @param {number|bigint|null} maxWait the longest wait in a queue; null for any
 * @returns {Charged}
 */
export function charge(numbers, state, now, cost, maxWait = 0) {
  if (state.kept) return chargeSlower(numbers, state, BigInt(now), cost, maxWait);
  if (numbers.windows) return chargeOnCalendar(numbers, state, BigInt(now), cost, maxWait);
  const [step, gain, token, capacity, floor] =
    ["step", "gain", "token", "capacity", "floor"].map((name) => BigInt(numbers[name]));
  let [value, ts] = [BigInt(state.value), BigInt(state.ts)];
  now = BigInt(now);
  const steps = now > ts ? (now - ts) / step : 0n;
  value = min(capacity, value + steps * gain);
  ts += steps * step;
  if (numbers.from_first_use && value === capacity && now > ts) ts = now; // a use begins a window
  value -= BigInt(cost) * token;
  if (value >= 0n) return { verdict: "admitted", wait: 0n, value, ts };
  const at = ts + step * ((-value + gain - 1n) / gain); // rounded up to a whole step
  const wait = at > now ? at - now : 0n;
  const reserved = value >= floor && (maxWait === null || wait <= BigInt(maxWait));
  return { verdict: reserved ? "reserved" : "refused", wait, value, ts };
}

/**
 * The same with windows of a calendar. They are counted, from the first that the server has told, and
 * a step is one window.
 */
function chargeOnCalendar({ windows, ...numbers }, state, now, cost, maxWait) {
  const { start, around, numberOf, mean } = counted(windows);
  const [ts, present] = [numberOf(BigInt(state.ts)), around(now)];
  const flat = charge({ ...numbers, step: 1 }, { value: state.value, ts }, present, cost, null);
  const wait = flat.wait > 0n ? start(present + flat.wait) - now : 0n;
  const late = flat.verdict === "reserved" && maxWait !== null && wait > BigInt(maxWait);
  const ahead = flat.ts - present; // of a blocked bucket: its time tells which window it is
  const later = ahead > 0n ? ahead * mean + mean / 4n : 0n;
  return { ...flat, verdict: late ? "refused" : flat.verdict, wait, ts: start(present) + later };
}

/** Windows by their number. Beyond the last that the server has told, they have the mean length. */
function counted(windows) {
  const [mean, ...starts] = [windows.mean, ...windows.starts].map(BigInt);
  const [first, last, told] = [starts[0], starts[starts.length - 1], BigInt(starts.length - 1)];
  const begun = (now) => BigInt(Math.max(starts.filter((start) => start <= now).length - 1, 0));
  return {
    mean,
    start: (n) => (n <= told ? starts[Number(n)] : last + (n - told) * mean),
    around: (now) => (now >= last ? told + (now - last) / mean : begun(now)),
    numberOf: (ts) => nearest(ts - first, mean),
  };
}

/** How many windows a distance is, to the nearest one. */
function nearest(distance, mean) {
  const [halves, whole] = [2n * distance + mean, 2n * mean];
  return (halves - (((halves % whole) + whole) % whole)) / whole;
}

/** Takes from a bucket that gains by faster numbers, as `charge_slower` does. */
function chargeSlower(numbers, { ts, kept }, now, cost, maxWait) {
  const { token, capacity } = kept;
  const own = charge({ ...kept, floor: 0 }, kept, now, 0);
  const used = BigInt(capacity) - own.value;
  const inOwn = (units) => (units * BigInt(token)) / BigInt(numbers.token);
  const taken = (used * BigInt(numbers.token) + BigInt(token) - 1n) / BigInt(token); // rounded up
  const left = BigInt(numbers.capacity) - min(taken, 2n ** 53n); // more cannot be counted
  const isBlocked = own.value < 0n && own.ts > now;
  const held = isBlocked ? min(left, -1n) : left;
  const start = kept.windows && own.ts > now ? own.ts : // they are of the same calendar
    startOfStep(numbers, BigInt(ts), own.ts, isBlocked, now);
  const wait = held < 0n ? 0 : maxWait; // what is used has to fit before any can be reserved
  const charged = charge(numbers, { value: held, ts: start }, now, cost, wait);
  if (charged.verdict !== "refused") return charged;
  const room = BigInt(numbers.capacity) - BigInt(cost) * BigInt(numbers.token);
  const more = used - inOwn(room > 0n ? room : 0n);
  const steps = more > 0n ? (more + BigInt(kept.gain) - 1n) / BigInt(kept.gain) : 0n;
  return { ...charged, wait: afterSteps(kept, own.ts, steps) - now };
}

/**
 * When the step or the window begins in which a bucket counts that was counted in other numbers until
 * `until`, where one begins at `ts`: around now, or the first after a block.
 */
function startOfStep({ step, windows, from_first_use }, ts, until, isBlocked, now) {
  if (windows) {
    const { start, around, mean } = counted(windows);
    const [begun, end] = [start(around(now)), start(around(now) + 1n)];
    if (!isBlocked || until < end) return begun;
    return begun + mean * ((until - end + mean / 8n) / mean + 1n) + mean / 4n;
  }
  const at = until > now ? until : now;
  if (from_first_use) return at;
  step = BigInt(step);
  const begun = at - ((((at - ts) % step) + step) % step);
  return isBlocked && begun < until ? begun + step : begun;
}

/** The instant so many steps after a time. */
function afterSteps({ step, windows }, ts, steps) {
  if (!windows) return ts + BigInt(step) * steps;
  const { start, numberOf } = counted(windows);
  return start(numberOf(ts) + steps);
}

const min = (a, b) => (a < b ? a : b);

/** A number that is no larger. One that cannot be exact is far below zero here. */
const floor = (exact) =>
  BigInt(Number(exact)) > exact ? Number(exact) * (1 + Number.EPSILON) : Number(exact);

/** The milliseconds since the Unix epoch, by a clock that is never set, unlike `Date.now()`. */
export const clock = () => performance.timeOrigin + performance.now();

/**
 * Asks a route made by `tollgate::routes::remaining`, and makes a bucket of each limit.
 * @param {string|URL} url
 * @param {RequestInit} [options] of `fetch`, such as a header field with a token
 * @param {() => number} [time] another clock, for tests
 * @returns {Promise<Bucket[]>} in the order of the rules
 */
export async function look(url, options, time = clock) {
  const sent = time();
  const response = await fetch(url, options);
  const received = time();
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  const { now, limits } = await response.json();
  return limits.map((limit) => new Bucket(limit, now, sent, received, time));
}

/** What a client knows of one limit. Times are milliseconds, as `clock()` tells them. */
export class Bucket {
  /**
   * @param {object} limit one of `limits` in the answer of the server
   * @param {number} now of that answer
   * @param {number} sent when the request was sent, and its answer received
   * @param {number} received
   * @param {() => number} time
   */
  constructor(limit, now, sent, received = sent, time = clock) {
    // Name, cost, max_cost, max_wait, bucket, quota; value and ts; kept, if it is there.
    Object.assign(this, limit, { time });
    /** Half the round trip: the server's clock shows `serverTime()` plus this, give or take this. */
    this.uncertainty = (received - sent) / 2;
    // The server read its clock between `sent` and `received`. The earliest time that it may have
    // counts here: tokens are there by the time that is predicted, and no countdown ends early.
    this.ahead = now - Math.ceil(received * 1000);
  }

  /** The earliest time that the server's clock may show, in microseconds. */
  serverTime(now = this.time()) {
    return Math.floor(now * 1000) + this.ahead;
  }

  /** The whole tokens that are left; 0 in debt. */
  remaining(now = this.time()) {
    const { value } = charge(this.bucket, this, this.serverTime(now), 0);
    return value > 0n ? Number(value / BigInt(this.bucket.token)) : 0;
  }

  /**
   * What a request would get: the verdict, the milliseconds to wait (0 if none), and the time then.
   * `wait` is null if the limit can never grant as much.
   * @returns {{verdict: string, wait: number|null, at: number|null}}
   */
  predict(cost = this.cost ?? 1, now = this.time()) {
    const never = this.max_cost === null || cost > this.max_cost; // null: the limit grants nothing
    if (never) return { verdict: "refused", wait: null, at: null };
    const { verdict, wait } = charge(this.bucket, this, this.serverTime(now), cost, this.max_wait);
    const millis = Math.ceil(Number(wait) / 1000);
    return { verdict, wait: millis, at: now + millis };
  }

  /**
   * Predicts the same, and takes the tokens unless they are refused: call it for each request that
   * is sent, and hand what it returns to `observe`.
   *
   * A full bucket gains nothing until the request arrives. The server's clock may be a round trip
   * ahead of `serverTime`, and the request under way for as long: if it arrives by then, the server
   * has at least what is known here.
   */
  take(cost = this.cost ?? 1, now = this.time()) {
    this.last = { ...this.predict(cost, now), cost, sent: now };
    if (this.last.verdict !== "refused") {
      const { step, gain, token, capacity, windows } = this.bucket;
      const [sent, arrived] = [now, now + 4 * this.uncertainty].map((time) =>
        charge(this.bucket, this, this.serverTime(time), cost));
      const isFull = sent.value + BigInt(cost) * BigInt(token) === BigInt(capacity);
      const passed = arrived.ts - sent.ts;
      const steps = windows ? nearest(passed, BigInt(windows.mean)) : passed / BigInt(step);
      const gained = steps * BigInt(gain);
      const [value, ts] = isFull ? [arrived.value, arrived.ts] : [arrived.value - gained, sent.ts];
      Object.assign(this, { value: floor(value), ts: Number(ts), kept: undefined });
    }
    return this.last;
  }

  /**
   * Corrects what is known by a response: if it was refused against the prediction, or the other way
   * round; and by its field `RateLimit` (draft 11), if others have taken tokens or some came back.
   * The field has whole tokens, so a fraction of one may be lost.
   * @param {Response} response
   * @param {object} taken what `take` has returned for its request
   */
  observe(response, taken, received = this.time()) {
    const refused = response.status === 429 || response.status === 503;
    if (refused !== (taken.verdict === "refused")) {
      if (this.kept) {
        const { value, ts } = charge(this.bucket, this, this.serverTime(received), 0);
        Object.assign(this, { value: floor(value), ts: Number(ts), kept: undefined });
      }
      this.value += (refused ? taken.cost : -taken.cost) * this.bucket.token;
    }
    const member = response.headers.get("ratelimit")?.split(JSON.stringify(this.name))[1];
    const told = Number(member?.match(/^[^,]*?;r=(\d+)/)?.[1] ?? NaN);
    // The server has decided between `sent` and `latest`. If it cannot have had as many tokens
    // then, it has others than are known here: the fewest count that agree with the field. A
    // request that was sent later is not in the field.
    const latest = received + 2 * this.uncertainty;
    if (taken === this.last && (told < this.remaining(taken.sent) || told > this.remaining(latest))) {
      const { ts } = charge(this.bucket, this, this.serverTime(latest), 0);
      Object.assign(this, { value: told * this.bucket.token, ts: Number(ts), kept: undefined });
    }
  }
}
