// Draws a lane: its level over time, what became of each request, and what is to come.

const ROW = 15; // the height of a row of marks
const LEFT = 36; // room for the labels of the level
const AXIS = 22; // room for the times, below the last chart

export class Chart {
  constructor(canvas, lane, hasAxis) {
    Object.assign(this, { canvas, lane, hasAxis });
    this.readColors();
  }

  /** Again when the theme changes. */
  readColors() {
    const style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = Object.fromEntries(
      ["lane", "lane-tint", "ink", "muted", "line", "paper", "refused", "queued", "queued-tint"].map((name) => [name, color(name)]));
    this.font = style.fontFamily;
  }

  /** The canvas in pixels of the screen, with a context that counts in those of CSS. */
  begin() {
    const { canvas } = this;
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height };
  }

  draw({ past, future, queues, deepest }) {
    const { lane, colors } = this;
    if (!lane.states.length) return;
    const { context: pen, width, height } = this.begin();
    const now = lane.serverNow();
    const [from, to] = [now - past, now + future];
    const { numbers } = lane.states.at(-1);
    const capacity = numbers.capacity / numbers.token;
    const rows = queues ? 3 : 2;
    const [top, bottom] = [rows * ROW + 10, height - (this.hasAxis ? AXIS : 4) - 4];
    const [behind, ahead] = [this.corners(from, now), this.corners(now, to)];
    // Before a change of the numbers, there may have been more than now, or less.
    const levels = behind.map(([, level]) => level);
    const high = Math.max(capacity, 1, ...levels);
    const low = Math.min(queues ? -Math.max(deepest, 1) : 0, ...levels);
    const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - 6);
    const y = (level) => bottom - ((level - low) / (high - low)) * (bottom - top);
    const line = (points, color, dash = [], weight = 1) => {
      pen.beginPath();
      for (const [px, py] of points) pen.lineTo(px, py);
      Object.assign(pen, { strokeStyle: color, lineWidth: weight, lineJoin: "round" });
      pen.setLineDash(dash);
      pen.stroke();
      pen.setLineDash([]);
    };
    const text = (what, px, py, color, align = "right") => {
      Object.assign(pen, { fillStyle: color, textAlign: align, textBaseline: "middle", font: `11px ${this.font}` });
      pen.fillText(what, px, py);
    };
    const shape = { pen, x, y, line, text, from, to, now, width, top, bottom };

    // The frame: full, empty, and as deep as reservations may go.
    for (const level of new Set([capacity, 0, low])) {
      line([[LEFT, y(level)], [width - 6, y(level)]], colors.line, level === 0 ? [] : [2, 3]);
      const label = String(Math.round(level * 10) / 10).replace("-", "−");
      text(label, LEFT - 7, y(level), colors.muted);
    }
    if (numbers.step > 1) this.drawEdges(shape, numbers);
    this.drawLevel(shape, behind, ahead);
    line([[x(now), 4], [x(now), bottom]], colors.ink, [], 1);
    this.drawMarks(shape, queues);
    const level = Math.max(low, lane.level(now));
    pen.beginPath();
    pen.arc(x(now), y(level), 4.5, 0, 7);
    Object.assign(pen, { fillStyle: colors.lane, strokeStyle: colors.paper, lineWidth: 2 });
    pen.fill();
    pen.stroke();
    if (this.hasAxis) this.drawTimes(shape, height);
  }

  /** Where windows begin. */
  drawEdges({ line, x, from, to, top, bottom }, { step }) {
    const { ts } = this.lane.states.at(-1);
    const period = step / 1000;
    const first = ts / 1000 + Math.ceil((from - ts / 1000) / period) * period;
    for (let edge = first; edge < to; edge += period) {
      line([[x(edge), top - 4], [x(edge), bottom]], this.colors.line);
    }
  }

  /** The level as corners of a line from one time to another. */
  corners(from, to) {
    const { states } = this.lane;
    const corners = [];
    for (const [index, state] of states.entries()) {
      const [begin, end] = [Math.max(state.at, from), Math.min(states[index + 1]?.at ?? to, to)];
      if (end < begin) continue;
      const { step, gain, capacity } = state.numbers;
      const add = (time) => corners.push([time, this.lane.level(time, state)]);
      add(begin);
      if (step === 1) {
        const full = (state.ts + Math.max(0, capacity - state.value) / gain) / 1000;
        if (full > begin && full < end) add(full);
      } else {
        const period = step / 1000;
        const after = Math.floor((begin - state.ts / 1000) / period) + 1;
        for (let edge = state.ts / 1000 + after * period; edge < end; edge += period) {
          corners.push([edge, this.lane.level(edge - 0.01, state)]);
          add(edge);
        }
      }
      corners.push([end, this.lane.level(end - (step === 1 ? 0 : 0.01), state)]);
    }
    return corners;
  }

  drawLevel({ pen, x, y, line, width, bottom }, behind, ahead) {
    const { colors } = this;
    const place = ([time, level]) => [x(time), y(level)];
    const past = behind.map(place);
    if (past.length) {
      const area = [[past[0][0], y(0)], ...past, [past.at(-1)[0], y(0)]];
      for (const [color, edge, size] of [[colors["lane-tint"], 0, y(0)], [colors["queued-tint"], y(0), bottom]]) {
        pen.save();
        pen.beginPath();
        pen.rect(0, edge, width, size);
        pen.clip();
        pen.beginPath();
        for (const [px, py] of area) pen.lineTo(px, py);
        pen.fillStyle = color;
        pen.fill();
        pen.restore();
      }
      line(past, colors.lane, [], 2);
    }
    line(ahead.map(place), colors.lane, [3, 4], 1.5);
  }

  /** A row for those that ran, one for those that wait, one for the refused. */
  drawMarks({ pen, x, line, text, from, to, now }, queues) {
    const { colors } = this;
    const row = { run: ROW * 0.5 + 4, wait: ROW * 1.5 + 4, refused: ROW * (queues ? 2.5 : 1.5) + 4 };
    const groups = new Map();
    const add = (kind, time) => {
      if (time < from || time > to) return;
      // Marks of one place become one mark with a number.
      const key = `${kind} ${Math.round(x(time) / 8)}`;
      const group = groups.get(key) ?? { kind, px: x(time), count: 0 };
      group.count += 1;
      groups.set(key, group);
    };
    for (const { verdict, at, run, ran } of this.lane.marks) {
      if (verdict === "refused") add("refused", at);
      else if (verdict === "admitted") add("run", at);
      else {
        add("wait", at);
        add(ran ? "run" : "later", run);
        const [begin, end] = [Math.max(from, at), Math.min(to, run)];
        if (begin < end) line([[x(begin), row.wait], [x(end), row.wait]], colors.queued, [], 1.5);
      }
    }
    // A number needs room beside its mark.
    const places = [...groups.values()];
    const isFree = (mine, side) => !places.some((other) => other !== mine && (row[other.kind] ?? row.run) === (row[mine.kind] ?? row.run)
      && (other.px - mine.px) * side > 0 && (other.px - mine.px) * side < 26);
    for (const group of places) {
      const { kind, px, count } = group;
      const py = row[kind] ?? row.run;
      pen.beginPath();
      if (kind === "refused") {
        pen.moveTo(px - 3.5, py - 3.5);
        pen.lineTo(px + 3.5, py + 3.5);
        pen.moveTo(px - 3.5, py + 3.5);
        pen.lineTo(px + 3.5, py - 3.5);
      } else if (kind === "wait") {
        for (const [dx, dy] of [[0, -4.5], [4.5, 0], [0, 4.5], [-4.5, 0]]) pen.lineTo(px + dx, py + dy);
        pen.closePath();
      } else {
        pen.arc(px, py, kind === "later" ? 3.2 : 3.8, 0, 7);
      }
      const color = { refused: colors.refused, wait: colors.queued }[kind] ?? colors.lane;
      Object.assign(pen, { strokeStyle: color, lineWidth: kind === "refused" ? 2 : 1.5 });
      if (kind === "refused") pen.stroke();
      else if (kind === "later" || kind === "wait") {
        pen.fillStyle = colors.paper;
        pen.fill();
        pen.stroke();
      } else {
        pen.fillStyle = color;
        pen.fill();
      }
      // To the right of those that wait is their line.
      const isLeft = kind === "wait";
      if (count === 1 || !isFree(group, isLeft ? -1 : 1)) continue;
      text(String(count), isLeft ? px - 8 : px + 7, py + 0.5, kind === "later" ? colors.muted : color, isLeft ? "right" : "left");
    }
  }

  drawTimes({ x, line, text, from, to, now, bottom }, height) {
    const gap = [1, 2, 5, 10, 20, 30].find((gap) => ((to - from) / 1000 / gap) * 46 < x(to) - x(from)) ?? 60;
    const last = Math.floor((to - now) / 1000 / gap);
    for (let nth = -Math.floor((now - from) / 1000 / gap); nth <= last; nth += 1) {
      const px = x(now + nth * gap * 1000);
      line([[px, bottom], [px, bottom + 4]], this.colors.line);
      const label = nth === 0 ? "now" : `${nth < 0 ? "−" : "+"}${Math.abs(nth) * gap} s`;
      const align = px > x(to) - 14 ? "right" : "center";
      text(label, px, height - AXIS / 2 - 1, nth === 0 ? this.colors.ink : this.colors.muted, align);
    }
  }
}
