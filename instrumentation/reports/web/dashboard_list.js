// The list of sessions: newest first, a page at a time, searchable, kept up to date.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make } = ctxpager;
  const ROWS = 50;
  const LIVE = 60; // seconds since a session was last heard of, or it is not live
  const LONGEST = 400; // calls of a session up to which what it saved is worked out without being asked for
  const AGAIN = 30_000; // milliseconds after which that is worked out again for a session that goes on
  const HEADS = [
    ["session"],
    ["agent"],
    ["model"],
    ["calls", true],
    ["began"],
    ["last seen"],
    ["cache"],
    ["tokens before", true],
    ["after", true],
    ["change", true],
    ["cost", true],
    ["saved", true],
  ];

  // What sessions have saved, as far as that was worked out, and when.
  const saved = new Map();

  function ago(at) {
    const seconds = Math.max(0, Date.now() / 1000 - at);
    const [size, name] = [
      [86_400, "d"],
      [3_600, "h"],
      [60, "min"],
    ].find(([span]) => seconds >= span) ?? [1, "s"];
    return `${Math.floor(seconds / size)} ${name} ago`;
  }

  const moment = (at) => new Date(at * 1000).toLocaleString();
  const when = (at, text) => make("time", { datetime: new Date(at * 1000).toISOString(), title: moment(at) }, text);
  const isLive = (line) => line.under_way > 0 || Date.now() / 1000 - line.seen < LIVE;
  const costOf = (line) => (line.dollars === null ? `${ctxpager.compact(line.cost)} units` : ctxpager.dollars(line.dollars));

  function savedOf(line) {
    if (!line.changed) return ["–", "nothing was changed"];
    const known = saved.get(line.session);
    if (!known) return ["…", line.calls > LONGEST ? "not worked out for so long a session: its own page tells" : "being worked out"];
    const sum = known.dollars_saved ?? known.saved;
    const text = known.dollars_saved === null ? `${ctxpager.compact(sum)} units` : ctxpager.dollars(sum);
    return [text, `net, against ${ctxpager.compact(known.cost_before)} units without ctxpager`, sum < 0 ? "db-bad" : "db-good"];
  }

  class List {
    constructor(root, ask, tell, live) {
      Object.assign(this, { root, ask, tell, live, from: 0, search: "", seq: null, closed: false });
      this.tiles = make("dl", { class: "cx-tiles" });
      this.input = make("input", { type: "search", class: "db-input", oninput: () => this.find() });
      this.where = make("span", { class: "cx-where", role: "status" });
      this.body = make("tbody", {});
      const button = (text, label, go) =>
        make("button", { type: "button", class: "cx-button", "aria-label": label, onclick: () => this.go(go()) }, text);
      this.buttons = [
        button("«", "Newest sessions", () => 0),
        button("‹", "Newer sessions", () => this.from - ROWS),
        button("›", "Older sessions", () => this.from + ROWS),
        button("»", "Oldest sessions", () => Math.floor((this.found - 1) / ROWS) * ROWS),
      ];
      this.none = make("p", { class: "db-none", hidden: true });
      root.replaceChildren(this.tiles, this.section());
    }

    section() {
      const heads = HEADS.map(([name, number]) => make("th", { scope: "col", class: number ? "cx-number" : null }, name));
      const table = make(
        "table",
        {},
        make("caption", { class: "cx-hidden" }, "Sessions, most recent first"),
        make("thead", {}, make("tr", {}, ...heads)),
        this.body,
      );
      const bar = make(
        "div",
        { class: "cx-bar" },
        make("label", { class: "db-search" }, "Search", this.input),
        make("div", { class: "cx-group", role: "group", "aria-label": "Pages of the list" }, ...this.buttons),
        this.where,
      );
      const frame = make("div", { class: "cx-scroll", role: "region", tabindex: "0", "aria-label": "Sessions" }, table);
      return make("section", { class: "cx-section db-list" }, bar, frame, this.none);
    }

    find() {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => {
        Object.assign(this, { search: this.input.value, from: 0, seq: null });
        this.poll();
      }, 120);
    }

    go(from) {
      Object.assign(this, { from: Math.max(0, from), seq: null });
      return this.poll();
    }

    // Show what is new; how long to wait before it is worth looking again.
    async poll() {
      const turn = (this.turn = (this.turn ?? 0) + 1);
      const asked = { search: this.search, offset: this.from, limit: ROWS };
      const told = await this.ask("sessions", this.seq === null ? asked : { ...asked, since: this.seq });
      if (this.closed || turn !== this.turn) return 2_000;
      const reading = told && told.newest > told.seq;
      if (told) {
        Object.assign(this, { seq: told.seq, found: told.found, lines: told.sessions });
        this.sums(told.sums);
        this.tell(reading ? `Reading the log: ${Math.floor((100 * told.seq) / told.newest)} %` : "");
      }
      this.draw();
      this.workOut();
      return reading ? 100 : 2_000;
    }

    sums({ sessions, calls, client, upstream, dollars, unpriced }) {
      const tile = (label, value, note = "") =>
        make("div", { class: "cx-tile" }, make("dt", {}, label), make("dd", {}, make("b", {}, value), make("small", {}, note)));
      this.tiles.replaceChildren(
        tile("Sessions", ctxpager.number(sessions)),
        tile("Calls", ctxpager.number(calls)),
        tile("Tokens before", ctxpager.compact(client)),
        tile("Tokens after", ctxpager.compact(upstream), `${ctxpager.signed(upstream - client, client)} with all requests`),
        tile("Cost", ctxpager.dollars(dollars), unpriced ? `without ${ctxpager.number(unpriced)} of unknown price` : ""),
      );
    }

    draw() {
      const { lines = [], found = 0 } = this;
      const until = Math.min(found, this.from + ROWS);
      this.where.textContent = found ? `${ctxpager.number(this.from + 1)}–${ctxpager.number(until)} of ${ctxpager.number(found)}` : "";
      const ends = [this.from === 0, this.from === 0, until >= found, until >= found];
      this.buttons.forEach((button, at) => button.toggleAttribute("disabled", ends[at]));
      this.none.hidden = found > 0;
      this.none.textContent = this.search ? "No session is like that." : "No session yet: point a client at this address.";
      const focused = document.activeElement?.dataset?.session;
      this.body.replaceChildren(...lines.map((line) => this.row(line)));
      if (focused) this.body.querySelector(`[data-session="${CSS.escape(focused)}"]`)?.focus();
    }

    row(line) {
      const name = make("a", { href: `#/s/${encodeURIComponent(line.session)}`, "data-session": line.session }, line.key || line.session);
      const live = isLive(line) ? make("span", { class: "db-live" }, make("span", { class: "cx-hidden" }, "live ")) : "";
      const [text, title, tone = ""] = savedOf(line);
      const [cache, then, cold] = this.live.cache(line.session);
      const failed = line.failed ? `, ${line.failed} failed` : "";
      const number = (value, attributes = {}) => make("td", { ...attributes, class: `cx-number ${attributes.class ?? ""}` }, value);
      return make(
        "tr",
        {},
        make("th", { scope: "row", title: line.session }, live, name),
        make("td", { title: line.harness }, line.harness),
        make("td", { title: line.model }, line.model),
        number(`${ctxpager.number(line.calls)}${failed}`),
        make("td", {}, when(line.began, moment(line.began))),
        make("td", {}, when(line.seen, ago(line.seen))),
        make("td", { title: then, class: cold }, cache),
        number(ctxpager.number(line.client)),
        number(ctxpager.number(line.upstream)),
        number(ctxpager.signed(line.upstream - line.client, line.client)),
        number(costOf(line)),
        number(text, { title, class: tone }),
      );
    }

    // What a session saved takes a moment to work out: for those that are seen, one after the other.
    async workOut() {
      if (this.working || document.hidden) return;
      this.working = true;
      try {
        for (;;) {
          const line = (this.lines ?? []).find((one) => this.isDue(one));
          if (!line || this.closed || document.hidden) return;
          const told = await this.ask("sums", { session: line.session });
          saved.set(line.session, { ...told, asked: Date.now() });
          this.draw();
        }
      } finally {
        this.working = false;
      }
    }

    isDue(line) {
      if (!line.changed || !line.calls || line.calls > LONGEST) return false;
      const known = saved.get(line.session);
      return !known || (known.seq < line.seq && Date.now() - known.asked > AGAIN);
    }

    close() {
      this.closed = true;
      clearTimeout(this.typing);
    }
  }

  Object.assign(ctxpager, { List, ago, moment, isLive });
}
