// Three short plays that show how the two kinds differ.

import { now } from "/time.js";

const start = { kind: "both", cost: 1, queue: 0, max_reserved: 8, shards: 1 };

/** How many of the requests since then have passed. */
const passed = (lane, since) => lane.counts.admitted + lane.counts.reserved - since.get(lane);
const count = (lanes) => new Map(lanes.map((lane) => [lane, lane.counts.admitted + lane.counts.reserved]));

export const lessons = {
  async burst(page) {
    await page.set({ ...start, rate: 4, period: 4, capacity: 8 });
    await page.reset();
    const since = count(page.lanes);
    page.say("Both are full: 8 tokens are saved up. Of 12 requests at once, each kind lets 8 pass.");
    await page.send(12);
    await page.until(now() + 1_500);
    page.say("Now two a second. The bucket gains one token each second, the window four at each edge.");
    for (let nth = 0; nth < 16; nth += 1) {
      await page.send(1);
      await page.until(now() + 500);
    }
    await page.settled();
    const [bucket, window] = page.lanes.map((lane) => passed(lane, since));
    page.say(`Of 28 requests, the bucket let ${bucket} pass, one by one. The window let ${window} pass, four at a time.`);
  },

  async edge(page) {
    await page.set({ ...start, rate: 6, period: 4, capacity: 6 });
    await page.reset();
    const window = page.lanes[1];
    const edge = () => (window.states.at(-1).ts + window.bucket.bucket.step) / 1000;
    await page.look();
    // In time for six requests before the edge.
    let next = edge();
    while (next - window.serverNow() < 700) next += window.bucket.bucket.step / 1000;
    page.say("Both are full. Six requests come just before the window ends, and six just after.");
    await page.until(now() + next - 400 - window.serverNow());
    const since = count(page.lanes);
    await page.send(6);
    await page.until(now() + 800);
    await page.send(6);
    await page.settled();
    const [bucket, through] = page.lanes.map((lane) => passed(lane, since));
    page.say(`Within a second, the window let ${through} pass, twice its rate. The bucket let ${bucket} pass, and never gives more than it has.`);
  },

  async queue(page) {
    await page.set({ ...start, rate: 2, period: 2, capacity: 2, queue: 15 });
    await page.reset();
    page.say("Eight requests come at once. Two run, and six wait. Each knows its instant from the beginning.");
    await page.send(8);
    await page.settled();
    const last = Math.max(...page.lanes.flatMap((lane) => lane.marks.map((mark) => mark.run)));
    await page.until(now() + last - page.lanes[0].serverNow() + 100);
    page.say("All have run and none was refused: one each second by the bucket, two at each edge by the window.");
  },
};
