// Context over calls as stacked areas, without paging above and with it below, on one scale.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make, swatch, PARTS } = ctxpager;
  const SIDES = { client: "Without paging: as the client sent it", sent: "With paging: as it went upstream" };

  class Areas extends ctxpager.Plot {
    constructor(view, side, chart) {
      super(view, { label: SIDES[side], height: 200 });
      Object.assign(this, { side, chart });
    }

    paint(context) {
      const { calls } = this.view.data;
      let below = new Float64Array(calls.length);
      for (const part of this.chart.shown) {
        const above = Float64Array.from(below, (value, at) => value + calls[at][this.side][part.name]);
        this.area(context, below, above, part);
        below = above;
      }
      this.working(context);
      if (this.side === "sent") this.repacks(context);
    }

    area(context, below, above, part) {
      context.beginPath();
      for (let at = 0; at < above.length; at += 1) this.tread(context, above[at], at, at + 1);
      for (let at = above.length - 1; at >= 0; at -= 1) this.tread(context, below[at], at + 1, at);
      context.closePath();
      const colour = this.colour(part.name);
      context.fillStyle = part.waste ? ctxpager.hatch(context, colour, this.colour("hatch"), this.ratio) : colour;
      context.fill();
    }

    tread(context, value, from, to) {
      const y = this.y(value);
      context.lineTo(this.x(from), y);
      context.lineTo(this.x(to), y);
    }

    // Twice, so that it is seen on every colour that it crosses.
    working(context) {
      const { calls } = this.view.data;
      if (!calls.some((call) => call.working)) return;
      context.beginPath();
      calls.forEach((call, at) => this.tread(context, call.working, at, at + 1));
      for (const [colour, width, dash] of [
        [this.colour("back"), 3, []],
        [this.colour("ink"), 1.5, [5, 3]],
      ]) {
        Object.assign(context, { strokeStyle: colour, lineWidth: width });
        context.setLineDash(dash);
        context.stroke();
      }
      context.setLineDash([]);
    }

    repacks(context) {
      this.view.data.calls.forEach((call, at) => {
        if (call.repack) this.diamond(context, at, this.top - 7);
      });
    }

    told(at) {
      const call = this.view.data.calls[at];
      const parts = [...PARTS].reverse().filter((part) => call[this.side][part.name]);
      const rows = parts.map((part) => [
        part.label,
        ctxpager.number(call[this.side][part.name]),
        swatch(part.name, part.waste),
      ]);
      const notes = call.repack && this.side === "sent" ? [`Repack: ${call.repack.cause}. ${call.repack.reason}`] : [];
      const sum = ["all", ctxpager.number(ctxpager.total(call[this.side]))];
      return {
        title: `Call ${at + 1} · ${ctxpager.named(call)}`,
        rows: [sum, ...rows, ["working set", ctxpager.number(call.working)]],
        notes,
      };
    }
  }

  class Context {
    constructor(view) {
      Object.assign(this, { view, hidden: new Set() });
      this.panes = Object.keys(SIDES).map((side) => new Areas(view, side, this));
      this.figures = this.panes.map((pane) =>
        make("figure", { class: "cx-figure" }, make("figcaption", {}, SIDES[pane.side]), pane.element),
      );
      this.legend = make("div", { class: "cx-legend", role: "group", "aria-label": "Parts that are shown" });
      this.sides = ctxpager.choice(
        "Show",
        [
          ["both", "both"],
          ["client", "without paging"],
          ["sent", "with paging"],
        ],
        "both",
        (side) => this.choose(side),
      );
      this.table = ctxpager.alternative("Context over calls as a table", () => this.rows());
      this.element = make(
        "div",
        {},
        make("div", { class: "cx-bar" }, this.sides.element),
        this.legend,
        ...this.figures,
        this.table.element,
      );
    }

    get shown() {
      return PARTS.filter((part) => !this.hidden.has(part.name));
    }

    choose(side) {
      this.figures.forEach((figure, at) => {
        figure.hidden = side !== "both" && side !== this.panes[at].side;
      });
      this.draw();
    }

    update() {
      const { sums } = this.view.data;
      const parts = [...PARTS].reverse().filter((part) => sums.client[part.name] || sums.sent[part.name]);
      this.legend.replaceChildren(...parts.map((part) => this.entry(part)), ...this.marks());
      this.panes.forEach((pane) =>
        pane.describe(`${ctxpager.number(ctxpager.total(sums[pane.side]))} tokens over ${sums.calls} calls.`),
      );
      this.table.update();
      this.draw();
    }

    entry(part) {
      const flip = () => {
        this.hidden[this.hidden.has(part.name) ? "delete" : "add"](part.name);
        this.draw();
      };
      const box = make("input", {
        type: "checkbox",
        name: part.name,
        checked: !this.hidden.has(part.name),
        onchange: flip,
      });
      return make("label", { class: "cx-key" }, box, swatch(part.name, part.waste), part.label);
    }

    marks() {
      const key = (mark, label) =>
        make("span", { class: "cx-key" }, make("span", { class: mark, "aria-hidden": "true" }), label);
      return [key("cx-dash", "working set"), key("cx-mark cx-mark-repack", "repack")];
    }

    draw() {
      const height = (call, side) => this.shown.reduce((sum, part) => sum + call[side][part.name], 0);
      const greatest = this.view.data.calls.reduce(
        (most, call) => Math.max(most, height(call, "client"), height(call, "sent"), call.working),
        0,
      );
      for (const pane of this.panes) {
        pane.greatest = greatest;
        pane.draw();
      }
    }

    rows() {
      const { calls } = this.view.data;
      const heads = ["call", "side", ...PARTS.map((part) => part.label), "all"];
      const cells = (row) => {
        const at = row >> 1,
          side = row & 1 ? "sent" : "client";
        const parts = calls[at][side];
        return [
          String(at + 1),
          side === "client" ? "without paging" : "with paging",
          ...PARTS.map((part) => ctxpager.number(parts[part.name])),
          ctxpager.number(ctxpager.total(parts)),
        ];
      };
      return { heads, count: 2 * calls.length, cells };
    }
  }

  Object.assign(ctxpager, { Context });
}
