// Money over calls: what the session has cost so far against doing nothing, with page-ins and repacks on the time axis.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make } = ctxpager;

  const eventsOf = (call) => Boolean(call.repack || call.pages_in || call.schemas_in || call.miss);

  // Why a call missed the provider's cache.
  function missed({ reason, tokens, pause, lifetime, changed, word }) {
    const seconds = `${ctxpager.number(pause)} s since the prompt was last sent, which is kept for ${ctxpager.number(lifetime)} s`;
    const known = { pause: seconds, dropped: seconds, settings: changed.join(", ") }[reason];
    const why = word ? `the provider says ${word}` : known;
    return `Cache missed, ${ctxpager.MISSES[reason]}${why ? `: ${why}` : ""}. ${ctxpager.number(tokens)} tokens were not found.`;
  }

  function reasons(call) {
    const told = [];
    if (call.repack) {
      const { cause, reason, pages, rewritten, warm } = call.repack;
      told.push(
        `Repack, ${cause}: ${reason.replace(/\.$/, "")}. ${ctxpager.number(pages)} pages evicted, ${ctxpager.number(rewritten)} tokens to read again (cache ${warm ? "warm" : "cold"}).`,
      );
    }
    if (call.pages_in)
      told.push(`Page-in: the model asked for ${ctxpager.number(call.pages_in)} page${call.pages_in > 1 ? "s" : ""}.`);
    if (call.schemas_in)
      told.push(
        `Page-in: the model asked for ${ctxpager.number(call.schemas_in)} tool schema${call.schemas_in > 1 ? "s" : ""}.`,
      );
    if (call.miss) told.push(missed(call.miss));
    return told;
  }

  class Lines extends ctxpager.Plot {
    constructor(view, chart) {
      super(view, { label: "Money over calls", height: 260, bottom: 58 });
      this.chart = chart;
    }

    get series() {
      return this.view.data.money[this.chart.unit];
    }
    scale(value) {
      return `${this.chart.unit === "dollars" ? "$" : ""}${ctxpager.compact(value)}`;
    }

    paint(context) {
      if (!this.count) return;
      this.between(context);
      const [cost, before] = this.series;
      this.line(context, before, this.colour("before"), [6, 4]);
      this.line(context, cost, this.colour("cost"), []);
      this.marks(context);
    }

    line(context, values, colour, dash) {
      context.beginPath();
      values.forEach((value, at) => context.lineTo(this.middle(at), this.y(value)));
      Object.assign(context, { strokeStyle: colour, lineWidth: 2, lineJoin: "round" });
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    }

    // The space between the lines is what was saved; hatched where paging has cost more than it saved.
    between(context) {
      const [cost, before] = this.series;
      const band = (upper, lower, fill) => {
        context.beginPath();
        upper.forEach((value, at) => context.lineTo(this.middle(at), this.y(value)));
        for (let at = lower.length - 1; at >= 0; at -= 1)
          context.lineTo(this.middle(at), this.y(Math.min(lower[at], upper[at])));
        context.fillStyle = fill;
        context.fill();
      };
      band(before, cost, this.colour("saved"));
      band(cost, before, ctxpager.hatch(context, this.colour("dearer"), this.colour("hatch"), this.ratio));
    }

    marks(context) {
      const rows = { repacks: this.height - 31, "page-ins": this.height - 11 };
      context.textAlign = "right";
      context.fillStyle = this.colour("quiet");
      for (const [label, y] of Object.entries(rows)) context.fillText(label, this.left - 6, y);
      this.view.data.calls.forEach((call, at) => {
        if (call.repack) this.diamond(context, at, rows.repacks);
        if (call.pages_in || call.schemas_in) this.triangle(context, at, rows["page-ins"]);
      });
    }

    // Below the axis the mouse looks for the nearest mark, so that a mark need not be hit exactly.
    point(event) {
      super.point(event);
      const box = this.element.getBoundingClientRect();
      if (event.clientY - box.top < this.height - this.bottom + 4) return;
      const nearest = this.near(this.view.cursor.at, Math.ceil((8 * this.count) / this.plotWidth));
      if (nearest !== null) this.look(nearest, event.clientX, event.clientY, false);
    }

    near(at, reach) {
      for (let away = 0; away <= reach; away += 1) {
        for (const to of [at - away, at + away])
          if (this.view.data.calls[to] && eventsOf(this.view.data.calls[to])) return to;
      }
      return null;
    }

    step(key) {
      const towards = { n: 1, p: -1 }[key];
      if (!towards) return super.step(key);
      const { calls } = this.view.data;
      for (let at = (this.last ?? -towards) + towards; calls[at]; at += towards) if (eventsOf(calls[at])) return at;
      return this.last;
    }

    told(at) {
      const call = this.view.data.calls[at];
      const [cost, before] = this.series;
      const unit = this.chart.unit;
      const saved = before[at] - cost[at];
      const rows = [
        ["cost so far", ctxpager.price(cost[at], unit)],
        ["without ctxpager", ctxpager.price(before[at], unit)],
        [
          saved < 0 ? "costs more by" : "saved",
          `${ctxpager.price(Math.abs(saved), unit)} (${ctxpager.share(Math.abs(saved), before[at])})`,
        ],
        ["this call", ctxpager.price(unit === "dollars" ? call.dollars : call.cost, unit)],
      ];
      return { title: `Call ${at + 1} · ${ctxpager.named(call)}`, rows, notes: reasons(call) };
    }
  }

  class Money {
    constructor(view) {
      Object.assign(this, { view, wanted: "dollars" });
      this.plot = new Lines(view, this);
      this.units = ctxpager.choice(
        "In",
        [
          ["dollars", "dollars"],
          ["units", "units"],
        ],
        "dollars",
        (unit) => {
          this.wanted = unit;
          this.draw();
        },
      );
      this.legend = make("div", { class: "cx-legend" });
      this.table = ctxpager.alternative("Money over calls as a table", () => this.rows());
      this.element = make(
        "div",
        {},
        make("div", { class: "cx-bar" }, this.units.element, this.legend),
        this.plot.element,
        make(
          "p",
          { class: "cx-note" },
          "A unit is the price of one uncached input token. The keys n and p go to the next and the previous page-in, repack or cache miss.",
        ),
        this.table.element,
      );
    }

    get unit() {
      return this.view.data.inDollars ? this.wanted : "units";
    }

    update() {
      const { sums, inDollars } = this.view.data;
      this.units.element.hidden = !inDollars;
      const key = (mark, label) =>
        make(
          "span",
          { class: "cx-key" },
          make("span", { class: `cx-mark cx-mark-${mark}`, "aria-hidden": "true" }),
          label,
        );
      this.legend.replaceChildren(
        key("cost", "with paging"),
        key("before", "without ctxpager"),
        key("saved", "saved"),
        key("dearer", "costs more"),
        key("repack", "repack"),
        key("fault", "page-in"),
      );
      this.plot.describe(
        `${ctxpager.number(sums.cost)} units against ${ctxpager.number(sums.cost_before)} without ctxpager; ${sums.repacks} repacks, ${sums.pages_in} page-ins.`,
      );
      this.table.update();
      this.draw();
    }

    draw() {
      const [cost, before] = this.plot.series;
      this.plot.greatest = Math.max(cost.at(-1) ?? 0, before.at(-1) ?? 0);
      this.plot.draw();
    }

    rows() {
      const { calls, money } = this.view.data;
      const heads = ["call", "cost so far", "without ctxpager", "saved", "what happened"];
      const cells = (at) => {
        const [cost, before] = money.units;
        return [
          String(at + 1),
          ctxpager.number(cost[at]),
          ctxpager.number(before[at]),
          ctxpager.number(before[at] - cost[at]),
          reasons(calls[at]).join(" "),
        ];
      };
      return { heads, count: calls.length, cells };
    }
  }

  Object.assign(ctxpager, { Money, reasons, missed });
}
