// Answers each line, a call of the predictor as JSON, by a line.
import { createInterface } from "node:readline";
import { Bucket, charge, look } from "../../../../js/tollgate.js";

/** An answer whose big integers are texts, so that no digit is lost. */
const told = ({ verdict, wait, value, ts }) => ({
  verdict, wait: String(wait), value: String(value), ts: String(ts),
});

const calls = {
  charge: ([numbers, state, now, cost, maxWait]) =>
    told(charge(numbers, state, BigInt(now), BigInt(cost), maxWait === null ? null : BigInt(maxWait))),

  // A bucket, and what is done with it, at times of the local clock.
  bucket: ([limit, now, sent, received, steps]) => {
    const bucket = new Bucket(limit, now, sent, received);
    return steps.map(([what, ...args]) => what === "uncertainty" ? bucket.uncertainty : bucket[what](...args));
  },

  // When a client sends its requests, if it waits before each as long as it predicts.
  follow: ([limit, now, looked, start, requests]) => {
    const bucket = new Bucket(limit, now, ...looked);
    return requests.map(([gap, cost]) => {
      start += gap + bucket.predict(cost, start + gap).wait;
      return [start, bucket.take(cost, start).verdict];
    });
  },

  // How many tokens a bucket knows of at a time, after requests with these costs were sent, and a
  // response came to the first of them.
  observe: ([limit, now, looked, costs, status, fields, sent, received, at]) => {
    const bucket = new Bucket(limit, now, ...looked);
    const [first] = costs.map((cost) => bucket.take(cost, sent));
    bucket.observe({ status, headers: new Headers(fields) }, first, received);
    return bucket.remaining(at);
  },

  look: async ([url, options]) => {
    try {
      const buckets = await look(url, options);
      return buckets.map((bucket) => ({
        name: bucket.name, remaining: bucket.remaining(), ...bucket.predict(), uncertainty: bucket.uncertainty,
        skew: bucket.serverTime() / 1000 - Date.now(),
      }));
    } catch (error) {
      return error.message;
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  console.log(JSON.stringify(await calls[name](args)));
}
