// How charts are drawn and reached: elements, colours, the tooltip, and a plot over calls that mouse and keyboard move along.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const RIGHT = 10;
  let made = 0;

  // Text is only ever set as text: whatever a story holds, none of it becomes markup.
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  const unique = (prefix) => `${prefix}-${(made += 1)}`;

  // Colours live in the style sheet alone, once for light and once for dark.
  function palette(element) {
    const style = getComputedStyle(element);
    return (name) => style.getPropertyValue(`--cx-${name}`).trim();
  }

  const swatch = (name, hatched = false) =>
    make("span", { class: `cx-swatch cx-of-${name}${hatched ? " cx-hatched" : ""}`, "aria-hidden": "true" });

  // Waste is hatched as well as coloured, so that it can be told without seeing colour.
  function hatch(context, colour, line, ratio) {
    const tile = document.createElement("canvas");
    const size = (tile.width = tile.height = Math.round(6 * ratio));
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = line;
    pen.lineWidth = 1.1 * ratio;
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
    }
    pen.stroke();
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern;
  }

  // A canvas as sharp as the screen; drawn on in CSS pixels.
  function fit(canvas, width, height) {
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return { context, ratio };
  }

  class Tooltip {
    constructor() {
      this.element = make("div", { class: "cx-tooltip", "aria-hidden": "true" });
      this.said = make("div", { class: "cx-hidden", role: "status", "aria-live": "polite" });
      this.hide();
    }

    // `aloud` says it to screen readers as well: what the keyboard has reached, not all that the mouse passes over.
    show({ title, rows, notes = [] }, x, y, aloud) {
      const cells = rows.map(([label, value, mark]) =>
        make("div", { class: "cx-tip-row" }, mark ?? "", make("span", {}, label), make("b", {}, value)),
      );
      this.element.replaceChildren(make("strong", {}, title), ...cells, ...notes.map((note) => make("p", {}, note)));
      this.element.hidden = false;
      const box = this.element.getBoundingClientRect();
      const left = x + 16 + box.width > innerWidth ? Math.max(4, x - 16 - box.width) : x + 16;
      this.element.style.left = `${left}px`;
      this.element.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - box.height - 4))}px`;
      if (aloud)
        this.said.textContent = [title, ...rows.map(([label, value]) => `${label} ${value}`), ...notes].join(", ");
    }

    hide() {
      this.element.hidden = true;
    }
  }

  // The call that is looked at, the same one in every chart.
  class Cursor {
    constructor() {
      this.at = null;
      this.watchers = [];
    }
    watch(watcher) {
      this.watchers.push(watcher);
    }
    move(at) {
      if (at === this.at) return;
      this.at = at;
      this.watchers.forEach((watcher) => watcher());
    }
  }

  // A chart over calls: one column a call, an axis at the left, a line at the call that is looked at.
  class Plot {
    constructor(view, { label, height, bottom = 20 }) {
      Object.assign(this, { view, label, height, bottom, top: 14 });
      this.base = make("canvas", { "aria-hidden": "true" });
      this.over = make("canvas", { "aria-hidden": "true", class: "cx-over" });
      this.element = make(
        "div",
        {
          class: "cx-plot",
          tabindex: "0",
          role: "application",
          "aria-roledescription": "chart",
          "aria-label": label,
          onkeydown: (event) => this.key(event),
          onpointermove: (event) => this.point(event),
          onpointerleave: () => this.leave(),
          onblur: () => this.leave(),
          onfocus: () => this.focus(),
        },
        this.base,
        this.over,
      );
      view.cursor.watch(() => this.drawOver());
    }

    describe(text) {
      this.element.setAttribute(
        "aria-label",
        `${this.label}. ${text} Left and right arrow keys move from call to call.`,
      );
    }

    x(at) {
      return this.left + at * this.column;
    }
    middle(at) {
      return (this.x(at) + this.x(at + 1)) / 2;
    }
    y(value) {
      return this.top + (1 - value / (this.greatest || 1)) * (this.height - this.top - this.bottom);
    }

    // Sizes are asked for once: to ask for them at every point would lay the page out again and again.
    measure() {
      this.count = this.view.data.calls.length;
      this.width = this.element.clientWidth;
      this.left = this.view.gutter;
      this.plotWidth = Math.max(1, this.width - this.left - RIGHT);
      this.column = this.plotWidth / Math.max(1, this.count);
    }

    draw() {
      this.measure();
      if (!this.width) return;
      this.colour = palette(this.element);
      const { context, ratio } = fit(this.base, this.width, this.height);
      this.ratio = ratio;
      this.axes(context);
      this.paint(context);
      this.drawOver();
    }

    axes(context) {
      context.font = this.view.font;
      context.textBaseline = "middle";
      context.textAlign = "right";
      context.lineWidth = 1;
      for (const tick of ctxpager.ticks(this.greatest, this.height > 120 ? 4 : 2)) {
        const y = Math.round(this.y(tick)) + 0.5;
        context.strokeStyle = this.colour(tick ? "grid" : "axis");
        context.beginPath();
        context.moveTo(this.left, y);
        context.lineTo(this.width - RIGHT, y);
        context.stroke();
        context.fillStyle = this.colour("quiet");
        context.fillText(this.scale(tick), this.left - 6, y);
      }
      this.callAxis(context, this.height - this.bottom + 11);
    }

    callAxis(context, y) {
      context.textBaseline = "middle";
      context.fillStyle = this.colour("quiet");
      for (const tick of ctxpager.ticks(this.count, this.width > 600 ? 10 : 4)) {
        if (!Number.isInteger(tick) || tick > this.count) continue;
        const at = Math.max(1, tick);
        const x = (this.x(at - 1) + this.x(at)) / 2;
        context.textAlign = x > this.width - 30 ? "right" : "center";
        context.fillText(at === 1 ? "call 1" : ctxpager.number(at), x > this.width - 30 ? this.width - RIGHT : x, y);
      }
    }

    scale(value) {
      return ctxpager.compact(value);
    }

    // A repack is a diamond, a page-in a triangle, wherever they are marked.
    diamond(context, at, y) {
      const x = this.middle(at);
      this.shape(context, this.colour("repack"), [
        [x, y - 5],
        [x + 5, y],
        [x, y + 5],
        [x - 5, y],
      ]);
    }

    triangle(context, at, y) {
      const x = this.middle(at);
      this.shape(context, this.colour("faulted"), [
        [x, y - 5],
        [x + 5, y + 4],
        [x - 5, y + 4],
      ]);
    }

    shape(context, colour, points) {
      context.beginPath();
      points.forEach(([x, y]) => context.lineTo(x, y));
      context.closePath();
      context.fillStyle = colour;
      context.fill();
    }

    drawOver() {
      if (!this.width) return;
      const { context } = fit(this.over, this.width, this.height);
      const at = this.view.cursor.at;
      if (at === null || at >= this.count) return;
      const from = this.x(at),
        to = Math.max(this.x(at + 1), from + 1);
      context.fillStyle = this.colour("cursor");
      context.fillRect(from, this.top, to - from, this.height - this.top - this.bottom);
    }

    point(event) {
      if (!this.count) return;
      const x = event.clientX - this.element.getBoundingClientRect().left;
      const at = Math.floor(((x - this.left) * this.count) / this.plotWidth);
      this.look(Math.max(0, Math.min(this.count - 1, at)), event.clientX, event.clientY, false);
    }

    look(at, x, y, aloud) {
      this.view.cursor.move(at);
      this.view.tooltip.show(this.told(at), x, y, aloud);
    }

    leave() {
      this.view.cursor.move(null);
      this.view.tooltip.hide();
    }

    focus() {
      if (this.element.matches(":focus-visible") && this.count) this.reach(this.last ?? 0);
    }

    reach(at) {
      this.last = Math.max(0, Math.min(this.count - 1, at));
      const box = this.element.getBoundingClientRect();
      this.look(this.last, box.left + this.x(this.last + 1), box.top + this.top, true);
    }

    step(key) {
      const at = this.last ?? 0;
      return {
        ArrowLeft: at - 1,
        ArrowRight: at + 1,
        PageUp: at - 10,
        PageDown: at + 10,
        Home: 0,
        End: this.count - 1,
      }[key];
    }

    key(event) {
      if (event.key === "Escape") return this.leave();
      const to = this.step(event.key);
      if (to === undefined || !this.count || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      event.preventDefault();
      return this.reach(to);
    }
  }

  Object.assign(ctxpager, { make, unique, palette, swatch, hatch, fit, Tooltip, Cursor, Plot, RIGHT });
}
