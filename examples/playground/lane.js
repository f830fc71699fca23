// One kind of limit on the page: what the server says of it, and what the browser predicts.

import { charge, look } from "/tollgate.js";
import { now } from "/time.js";

/** How long the past of a lane is kept, in milliseconds. */
const KEPT = 120_000;

export class Lane {
  constructor(name, title) {
    Object.assign(this, { name, title });
    this.counts = { admitted: 0, reserved: 0, refused: 0 };
    this.agreed = 0;
    this.differed = 0;
    this.clear();
  }

  clear() {
    this.states = []; // what the server said: when, value and ts, with the numbers they count in
    this.marks = []; // one for each request
    this.sent = new Map(); // predictions without an answer, by the ids of their requests
  }

  /** Asks the server once. All that follows is predicted from that. */
  async look(url) {
    [this.bucket] = await look(url, undefined, now);
    this.sent.clear();
    this.know({ now: this.bucket.serverTime(), value: this.bucket.value, ts: this.bucket.ts });
  }

  /** The time of the server, in milliseconds: the middle of what is possible. */
  serverNow(time = now()) {
    return this.bucket.serverTime(time) / 1000 + this.bucket.uncertainty;
  }

  /** Predicts a request that is sent now. */
  predict(id) {
    const predicted = this.bucket.take();
    this.sent.set(id, predicted);
    return predicted;
  }

  /** Hears from the server what was decided, and returns whether the browser has known. */
  decided(event) {
    this.know(event);
    this.counts[event.verdict] += 1;
    const predicted = this.sent.get(event.id);
    this.sent.delete(event.id);
    const at = event.now / 1000;
    const run = event.verdict === "reserved" ? at + event.wait / 1000 : at;
    const mark = { id: event.id, at, run, verdict: event.verdict, ran: event.verdict === "admitted", predicted, event };
    if (predicted) {
      mark.agrees = this.agrees(predicted, event);
      if (mark.agrees) this.agreed += 1;
      else this.differed += 1;
      const status = event.verdict === "refused" ? 429 : 200;
      this.bucket.observe({ status, headers: new Headers(event.fields ?? []) }, predicted, now());
    }
    this.marks.push(mark);
    return mark;
  }

  /** A request that has waited is running. */
  ran(event) {
    this.know(event);
    const mark = this.marks.find((mark) => mark.id === event.id && !mark.ran);
    if (mark) {
      mark.ran = true;
      mark.run = event.now / 1000;
    }
    return mark;
  }

  /** Whether the verdict is the one that was predicted, and the instant to run or to come back. */
  agrees(predicted, event) {
    if (event.wait === null || predicted.wait === null) return event.wait === predicted.wait;
    const decided = (event.now - this.bucket.ahead) / 1000;
    // As exactly as the clock is known and the request was under way; waits are whole milliseconds.
    const close = 4 * this.bucket.uncertainty + decided - predicted.sent;
    if (event.verdict === "admitted") return predicted.verdict === "admitted" || decided + close >= predicted.at;
    const late = predicted.at - (decided + event.wait / 1000);
    return predicted.verdict === event.verdict && late >= -close && late < 1 + close;
  }

  know({ now: at, value, ts }) {
    this.states.push({ at: at / 1000, value, ts, numbers: this.bucket.bucket });
    const from = at / 1000 - KEPT;
    while (this.states.length > 1 && this.states[1].at < from) this.states.shift();
    while (this.marks.length && this.marks[0].run < from) this.marks.shift();
  }

  /** The level in tokens at a time of the server, by what it said last before that. */
  level(at, state = this.states.at(-1)) {
    const { numbers } = state;
    const { value } = charge(numbers, state, Math.floor(at * 1000), 0);
    return Number(value) / numbers.token;
  }
}
