// The clock of the page, and waiting by it.
//
// With `?clock=manual`, time stands still until a test calls `playground.tick(milliseconds)`. The
// page cannot tell the difference: nothing else in it reads a clock.

import { clock } from "/tollgate.js";

export const isManual = new URLSearchParams(location.search).get("clock") === "manual";

let manual = 0;
let waiting = []; // [time, wake], for a manual clock

/** Milliseconds since the Unix epoch. */
export const now = () => (isManual ? manual : clock());

/** Waits until a time. */
export function until(time) {
  if (!isManual) return new Promise((wake) => setTimeout(wake, Math.max(0, Math.ceil(time - now()))));
  if (time <= manual) return Promise.resolve();
  return new Promise((wake) => waiting.push([time, wake]));
}

/** Sets a manual clock to the time of the server. */
export function begin(time) {
  if (isManual) manual = time;
}

/** Whether something waits for a manual clock. */
export const isAwaited = () => waiting.length > 0;

/** Moves a manual clock, and lets those run who have waited for it. */
export async function tick(millis) {
  manual += millis;
  const due = waiting.filter(([time]) => time <= manual).sort(([a], [b]) => a - b);
  waiting = waiting.filter(([time]) => time > manual);
  for (const [, wake] of due) {
    wake();
    await null;
  }
}
