// One session: its charts while it runs, the content of a page on demand, and why a call went out as it did.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make } = ctxpager;
  const BEAT = 2_000;
  const REST = 5; // a story is asked for again after so many times as long as it took to tell

  // The calls that are known in outline only stand behind those of which all is known.
  function joined(outline, whole) {
    if (!whole) return outline;
    const newer = (outline?.calls ?? []).slice(whole.calls.length);
    return newer.length ? { ...whole, calls: [...whole.calls, ...newer] } : whole;
  }

  const spotOf = (call) => `${call.branch}:${call.call}#${call.attempt}`;

  class Session {
    constructor(root, id, ask, tell, live) {
      Object.assign(this, { root, id, ask, tell, live, seq: { outline: 0, story: 0 }, told: {}, closed: false });
      this.charts = make("div", { id: "charts" });
      this.why = new Why(this);
      root.replaceChildren(this.charts, this.why.element);
      this.charts.addEventListener("click", (event) => this.choose(event));
    }

    // Show what is new; how long to wait before it is worth looking again.
    async poll() {
      if (await this.take("outline")) this.show();
      else if (this.view) this.facts(joined(this.told.outline, this.told.story));
      this.root.dataset.ready ??= String(Math.round(performance.now()));
      this.read();
      return BEAT;
    }

    // All of it takes longer, and is asked for beside what is told at once.
    async read() {
      if (this.reading || this.closed || performance.now() < (this.next ?? 0)) return;
      this.reading = true;
      const begun = performance.now();
      try {
        if (await this.take("story")) {
          this.show();
          this.next = performance.now() + REST * (performance.now() - begun);
        }
        this.tell(this.state());
      } catch (error) {
        if (!this.closed) this.tell(error.message, true);
        this.next = performance.now() + 10_000;
      } finally {
        this.reading = false;
      }
    }

    async take(what) {
      const told = await this.ask(what, { session: this.id, since: this.seq[what] });
      if (!told || this.closed) return false;
      this.seq[what] = told.seq;
      this.told[what] = told.story;
      return true;
    }

    show() {
      const story = joined(this.told.outline, this.told.story);
      this.charts.toggleAttribute("data-outline", !this.told.story);
      if (this.told.story) this.root.dataset.whole ??= String(Math.round(performance.now()));
      if (this.view) this.view.update(story);
      else this.view = ctxpager.show(this.charts, story, { content: (page) => this.content(page) });
      this.root.dataset.calls = String(story.calls.length);
      this.why.update(story.calls);
      this.facts(story);
      this.tell(this.state());
    }

    state() {
      if (!this.told.story) return "Reading what the prompts are made of: parts, pages and savings follow in a moment.";
      const left = (this.told.outline?.calls.length ?? 0) - this.told.story.calls.length;
      return left > 0 ? `${left} calls are shown in outline: their parts are being read.` : "";
    }

    facts(story) {
      const calls = story.calls;
      const latest = calls[calls.length - 1];
      const models = [...new Set(calls.map((call) => call.model))].filter(Boolean).join(", ");
      const facts = [
        ["key", story.key],
        ["agent", story.harness],
        ["model", models],
        ["policy", story.policy],
        ["latest call", latest ? ctxpager.moment(latest.at) : ""],
        ["cache", this.live.cache(this.id).slice(0, 2).filter(Boolean).join(", ")],
      ].filter(([, value]) => value);
      document
        .getElementById("facts")
        .replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    }

    async content(page) {
      try {
        const told = await this.ask("page", { session: this.id, branch: page.branch, name: page.name });
        return [told.about, told.content].filter(Boolean).join("\n\n");
      } catch (error) {
        return error.message;
      }
    }

    // A click on a row of calls asks why; the number in it is the call's place among those that are shown.
    choose(event) {
      const row = event.target.closest(".cx-calls tbody tr, .cx-events tbody tr");
      const call = row && this.view?.data.calls[Number(row.firstElementChild.textContent.replace(/\D/g, "")) - 1];
      if (call) this.why.of(spotOf(call));
    }

    close() {
      this.closed = true;
      this.view?.close();
    }
  }

  // What was decided at a call, and why.
  class Why {
    constructor(session) {
      Object.assign(this, { session, spots: [], repacks: [] });
      this.input = make("input", { type: "number", min: "1", class: "db-input db-number", required: true });
      this.of_ = make("span", { class: "cx-where" });
      const step = (text, label, by) =>
        make("button", { type: "button", class: "cx-button", "aria-label": label, onclick: () => this.step(by) }, text);
      this.answer = make("div", { "aria-live": "polite" });
      const id = ctxpager.unique("db-why");
      const form = make(
        "form",
        { class: "cx-bar", onsubmit: (event) => this.submit(event) },
        make("label", { class: "db-search" }, "Call", this.input),
        this.of_,
        make("button", { type: "submit", class: "cx-button" }, "Why?"),
        step("‹ repack", "Previous repack", -1),
        step("repack ›", "Next repack", 1),
      );
      this.element = make(
        "section",
        { class: "cx-section db-why", "aria-labelledby": id },
        make("h2", { id }, "What was decided, and why"),
        form,
        make("p", { class: "cx-note" }, "A click on a row of the tables above asks for that call."),
        this.answer,
      );
    }

    update(calls) {
      this.spots = calls.map(spotOf);
      this.repacks = [...calls.keys()].filter((at) => calls[at].repack);
      this.input.max = String(calls.length);
      this.input.value ||= calls.length ? String((this.repacks.at(-1) ?? calls.length - 1) + 1) : "";
      this.of_.textContent = `of ${ctxpager.number(calls.length)}`;
    }

    submit(event) {
      event.preventDefault();
      this.of(this.spots[Number(this.input.value) - 1]);
    }

    step(by) {
      const at = Number(this.input.value) - 1;
      const to = by < 0 ? this.repacks.filter((one) => one < at).at(-1) : this.repacks.find((one) => one > at);
      if (to !== undefined) this.of(this.spots[to]);
    }

    async of(spot) {
      if (!spot) return;
      this.input.value = String(this.spots.indexOf(spot) + 1);
      this.answer.replaceChildren(make("p", { class: "db-none" }, "Weighing it again…"));
      try {
        this.tell(await this.session.ask("why", { session: this.session.id, call: spot }));
      } catch (error) {
        this.answer.replaceChildren(make("p", { class: "db-wrong" }, error.message));
      }
      this.element.scrollIntoView({ block: "nearest" });
    }

    tell(why) {
      const facts = this.facts(why).filter(([, value]) => value);
      const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
      const pages = new ctxpager.Paged(`Pages at call ${why.branch}:${why.call}`, () => rowsOf(why), 12);
      pages.update();
      this.answer.replaceChildren(list, ...(why.rows.length ? [pages.element] : []));
    }

    facts(why) {
      const { logged, weighing } = why;
      const units = (value) => `${ctxpager.number(value)} units`;
      return [
        ["call", `${why.branch}:${why.call}, attempt ${why.attempt} of ${why.attempts}, ${ctxpager.moment(why.at)}`],
        ["model", `${why.model}: a window of ${ctxpager.number(why.window)} tokens`],
        ["prompt", `${ctxpager.number(why.tokens)} tokens, ${ctxpager.number(why.rows.length)} pages`],
        ["cache", `${why.warm ? "warm" : "cold"}: ${why.warmth}`],
        ["missed", why.miss ? ctxpager.missed({ ...ctxpager.DEFAULTS.miss, ...why.miss }) : ""],
        ["to go", why.to_go === null ? why.guess : `${ctxpager.number(why.to_go)} calls: ${why.guess}`],
        ["so far", `saved ${units(why.saved)}, spent ${units(why.spent)}`],
        ...logged.repacks.map((one) => [
          "decided",
          `repack by ${one.cause ?? ""}: ${one.reason}; ${ctxpager.number((one.pages ?? []).length)} pages went, ` +
            `${ctxpager.number(one.saved ?? 0)} tokens less on each call, price ${units(one.price ?? 0)}`,
        ]),
        ...logged.bypasses.map((one) => ["bypassed", [one.reason, one.detail].filter(Boolean).join(": ")]),
        ["decided", logged.repacks.length || logged.bypasses.length ? "" : "no repack"],
        ["policy", `${weighing.policy} (${weighing.chosen_by})`],
        ["weighed", weighing.unplanned ? `not then: ${weighing.unplanned}` : weighing.reason],
        ["rejected", weighing.rejected],
        ["differs", weighing.differs],
        ["tools", why.tools ? why.tools.reason : "nothing was decided of them by then"],
      ];
    }
  }

  function rowsOf({ rows }) {
    const some = (value, digits = 0) => (value === null || value === undefined ? "" : value.toLocaleString("en", { maximumFractionDigits: digits }));
    const heads = ["page", "of", "tokens", "age", "idle", "uses", "faults", "state", "chance", "saving", "fault", "worth", "verdict"];
    const cells = (at) => {
      const { page, ...row } = rows[at];
      return [
        page.handle,
        [page.tool, row.about].filter(Boolean).join(" "),
        ...[page.tokens, page.age, page.idle, page.uses, page.faults].map((value) => some(value ?? 0)),
        [row.state, row.why].filter(Boolean).join(" "),
        some(row.chance, 3),
        ...[row.saving, row.fault, row.worth].map((value) => some(value)),
        row.verdict,
      ];
    };
    return { heads, count: rows.length, cells };
  }

  Object.assign(ctxpager, { Session });
}
