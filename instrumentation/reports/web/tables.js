// Tables and controls: the sums, waste by cause, the calls, and what stands in for a chart to those who cannot see it.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make, swatch, PARTS } = ctxpager;
  const ROWS = 20;

  const isNumber = (text) => /^[−\d$–+]/.test(text);

  function rowOf(cells, first = "th") {
    return make(
      "tr",
      {},
      ...cells.map((cell, at) => {
        const text = typeof cell === "string" ? cell : cell.textContent;
        return make(at ? "td" : first, { scope: at ? null : "row", class: isNumber(text) ? "cx-number" : null }, cell);
      }),
    );
  }

  const headOf = (heads, numbers) =>
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...heads.map((head, at) => make("th", { scope: "col", class: numbers[at] ? "cx-number" : null }, head)),
      ),
    );

  const framed = (label, table) =>
    make("div", { class: "cx-scroll", role: "region", tabindex: "0", "aria-label": label }, table);

  function simple(caption, heads, rows) {
    const numbers = heads.map(
      (_, at) =>
        rows.length > 0 && rows.every((row) => isNumber(typeof row[at] === "string" ? row[at] : row[at].textContent)),
    );
    return framed(
      caption,
      make(
        "table",
        {},
        make("caption", { class: "cx-hidden" }, caption),
        headOf(heads, numbers),
        make("tbody", {}, ...rows.map((row) => rowOf(row))),
      ),
    );
  }

  // A table of any length: a page of rows at a time.
  class Paged {
    constructor(caption, source, size = ROWS) {
      Object.assign(this, { caption, source, size, from: 0 });
      this.holder = make("div", {});
      this.where = make("span", { class: "cx-where", role: "status" });
      const button = (text, label, go) =>
        make("button", { type: "button", class: "cx-button", "aria-label": label, onclick: () => this.go(go()) }, text);
      this.buttons = [
        button("«", "First rows", () => 0),
        button("‹", "Previous rows", () => this.from - this.size),
        button("›", "Next rows", () => this.from + this.size),
        button("»", "Last rows", () => this.last),
      ];
      this.bar = make(
        "div",
        { class: "cx-bar" },
        make("div", { class: "cx-group", role: "group", "aria-label": `Rows of: ${caption}` }, ...this.buttons),
        this.where,
      );
      this.element = make("div", {}, this.bar, this.holder);
    }

    get last() {
      return Math.floor(Math.max(0, this.count - 1) / this.size) * this.size;
    }

    go(from) {
      this.from = from;
      this.update();
    }

    update() {
      const { heads, count, cells } = this.source();
      this.count = count;
      this.from = Math.max(0, Math.min(this.from, this.last));
      const until = Math.min(count, this.from + this.size);
      this.bar.hidden = count <= this.size;
      this.where.textContent = `${ctxpager.number(this.from + 1)}–${ctxpager.number(until)} of ${ctxpager.number(count)}`;
      const ends = [this.from === 0, this.from === 0, until >= count, until >= count];
      this.buttons.forEach((button, at) => button.toggleAttribute("disabled", ends[at]));
      const kept = this.holder.firstChild?.scrollLeft ?? 0;
      const rows = Array.from({ length: until - this.from }, (_, at) => cells(this.from + at));
      this.holder.replaceChildren(count ? simple(this.caption, heads, rows) : make("p", { class: "cx-note" }, "None."));
      this.holder.firstChild.scrollLeft = kept;
    }
  }

  // The same as a chart shows, as a table; made when it is opened.
  function alternative(caption, source) {
    const paged = new Paged(caption, source);
    const update = () => {
      if (element.open) paged.update();
    };
    const element = make(
      "details",
      { class: "cx-details", ontoggle: update },
      make("summary", {}, caption),
      paged.element,
    );
    return { element, update };
  }

  function choice(label, options, chosen, act) {
    const name = ctxpager.unique("choice");
    const entry = ([value, text]) =>
      make(
        "label",
        { class: "cx-option" },
        make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => act(value) }),
        make("span", {}, text),
      );
    return { element: make("fieldset", { class: "cx-choice" }, make("legend", {}, label), ...options.map(entry)) };
  }

  function picker(label, options, act) {
    const select = make(
      "select",
      { onchange: () => act(select.value) },
      ...options.map(([value, text]) => make("option", { value }, text)),
    );
    return make("label", { class: "cx-picker" }, `${label} `, select);
  }

  const tile = (name, label, value, note, tone = "") =>
    make(
      "div",
      { class: `cx-tile ${tone}`, "data-sum": name },
      make("dt", {}, label),
      make("dd", {}, make("b", {}, value), note ? make("small", {}, note) : null),
    );

  function money(sums) {
    const paid = (units, dollars) =>
      dollars === null
        ? [`${ctxpager.number(units)}`, "units"]
        : [ctxpager.dollars(dollars), `${ctxpager.number(units)} units`];
    const [before, cost] = sums.dollars === null ? [sums.cost_before, sums.cost] : [sums.dollars_before, sums.dollars];
    const saved = before - cost;
    const how = sums.dollars === null ? ctxpager.number(Math.abs(saved)) : ctxpager.dollars(Math.abs(saved));
    return [
      tile("cost", "Cost", ...paid(sums.cost, sums.dollars)),
      tile("cost_before", "Without ctxpager", ...paid(sums.cost_before, sums.dollars_before)),
      tile(
        "saved",
        saved < 0 ? "Costs more by" : "Saved, net",
        how,
        `${ctxpager.signed(cost - before, before)}`,
        saved < 0 ? "cx-bad" : saved > 0 ? "cx-good" : "",
      ),
    ];
  }

  function tiles(data) {
    const { sums } = data;
    const many = (count, one) => `${ctxpager.number(count)} ${one}${count === 1 ? "" : one.endsWith("h") ? "es" : "s"}`;
    const failed = data.failed ? `, ${ctxpager.number(data.failed)} failed` : "";
    const estimated = sums.estimated ? `, ${many(sums.estimated, "call")} estimated` : "";
    const wrong = sums.corrected ? `, ${ctxpager.number(sums.corrected)} corrected` : "";
    return make(
      "dl",
      { class: "cx-tiles" },
      ...money(sums),
      tile(
        "calls",
        "Calls",
        ctxpager.number(sums.calls),
        `${many(sums.branches, "branch")}, ${many(sums.requests, "request")}${failed}`,
      ),
      tile(
        "client",
        "Tokens before",
        ctxpager.number(sums.clientTokens),
        sums.new ? `a token was sent ${(sums.clientTokens / sums.new).toFixed(1)} times on average` : "all prompts together",
      ),
      tile(
        "sent",
        "Tokens after",
        ctxpager.number(sums.sentTokens),
        `${ctxpager.signed(sums.sentTokens - sums.clientTokens, sums.clientTokens)}; billed ${ctxpager.number(sums.input)}${estimated}`,
      ),
      tile(
        "tokens_saved",
        "Tokens saved",
        ctxpager.number(sums.clientTokens - sums.sentTokens),
        "first request of each call",
      ),
      tile(
        "hit_rate",
        "Cache hit rate",
        ctxpager.share(sums.cached, sums.input),
        sums.cached_before ? `${ctxpager.share(sums.cached_before, sums.clientTokens)} without ctxpager` : "",
      ),
      tile("pages_in", "Page-ins", ctxpager.number(sums.pages_in), `and ${many(sums.schemas_in, "schema")}${wrong}`),
      tile("repacks", "Repacks", ctxpager.number(sums.repacks), `${many(sums.evicted, "page")} evicted`),
    );
  }

  function waste({ sums }) {
    const all = sums.clientTokens;
    const row = (label, before, after) => [
      label,
      ctxpager.number(before),
      ctxpager.share(before, all),
      ctxpager.number(before - after),
      ctxpager.number(after),
      ctxpager.share(after, all),
    ];
    const causes = PARTS.filter((part) => part.waste).sort(
      (one, other) => sums.client[other.name] - sums.client[one.name],
    );
    const labelled = (part) => make("span", {}, swatch(part.name, true), part.label);
    const sum = (side) => causes.reduce((tokens, part) => tokens + sums[side][part.name], 0);
    return simple(
      "Waste by cause",
      ["cause", "before", "share", "removed", "after", "share"],
      [
        ...causes.map((part) => row(labelled(part), sums.client[part.name], sums.sent[part.name])),
        row(make("b", {}, "all waste"), sum("client"), sum("sent")),
      ],
    );
  }

  // What paging itself has cost: its price is in the cost above already.
  function inflicted({ sums }) {
    const own = sums.inflicted;
    const row = (label, tokens, units) => [
      label,
      ctxpager.number(tokens),
      ctxpager.number(units),
      ctxpager.share(units, sums.cost),
    ];
    return simple(
      "Cost of paging",
      ["cost of paging", "tokens", "token-equivalents", "of the cost"],
      [
        row("stubs and page_in", sums.sent.stubs, own.stubs),
        row("fetches: requests made again", own.page_in_tokens, own.page_ins),
        row("corrected calls: requests made again", own.correction_tokens, own.corrections),
        row("cache rewrites", sums.rewritten, own.rewritten),
      ],
    );
  }

  // Calls that did not find what the one before had left in the cache: what that cost is in the cost above already.
  function misses({ sums, inDollars }) {
    const money = (units, dollars) => (inDollars ? ctxpager.dollars(dollars) : ctxpager.number(units));
    const row = (label, one) => [
      label,
      ctxpager.number(one.calls),
      ctxpager.number(one.tokens),
      money(one.cost, one.dollars),
      ctxpager.share(one.cost, sums.cost),
    ];
    const found = Object.keys(ctxpager.MISSES).filter((reason) => sums.misses[reason]);
    const rows = found.map((reason) => row(ctxpager.MISSES[reason], sums.misses[reason]));
    if (sums.cold_before.calls) rows.push(row("pauses, without ctxpager", sums.cold_before));
    const unit = inDollars ? "cost more ($)" : "cost more (token-equivalents)";
    return simple("Cache misses", ["cache misses", "calls", "tokens", unit, "of the cost"], rows);
  }

  // What keeping prompts warm has cost and brought, apart from paging.
  function keptWarm({ sums, inDollars }) {
    const { refreshes, cost, dollars, rescues, rescued, dollars_rescued } = sums.kept_warm;
    const money = (units, amount) => (inDollars ? ctxpager.dollars(amount) : ctxpager.number(units));
    return simple(
      "Keeping warm",
      ["keeping warm", "count", inDollars ? "$" : "token-equivalents"],
      [
        ["refreshes", ctxpager.number(refreshes), money(cost, dollars)],
        ["calls rescued", ctxpager.number(rescues), money(rescued, dollars_rescued)],
        ["saved, net", "", money(rescued - cost, dollars_rescued - dollars)],
      ],
    );
  }

  // Tables that are shown where there is something in them.
  const cache = (data) => [
    ...(Object.keys(data.sums.misses).length || data.sums.cold_before.calls ? [misses(data)] : []),
    ...(data.sums.kept_warm.refreshes || data.sums.kept_warm.rescues ? [keptWarm(data)] : []),
  ];

  function callRows(data) {
    const since = data.calls[0]?.at ?? 0;
    const unit = data.inDollars ? "dollars" : "units";
    const heads = [
      "",
      "call",
      "time",
      "model",
      "before",
      "after",
      "cached",
      "output",
      `cost (${data.inDollars ? "$" : "token-equivalents"})`,
      "without ctxpager",
      "page-ins",
      "repack",
      "cache miss",
      "tools called",
    ];
    const cells = (at) => {
      const call = data.calls[at];
      const [cost, before] = data.inDollars ? [call.dollars, call.dollars_before] : [call.cost, call.cost_before];
      return [
        String(at + 1),
        ctxpager.named(call),
        `${ctxpager.number(call.at - since)} s`,
        call.model,
        ctxpager.number(ctxpager.total(call.client)),
        ctxpager.number(ctxpager.total(call.sent)),
        ctxpager.share(call.cached, call.input),
        ctxpager.number(call.output),
        ctxpager.price(cost, unit),
        ctxpager.price(before, unit),
        ctxpager.number(call.pages_in),
        call.repack ? call.repack.cause : "",
        call.miss ? ctxpager.MISSES[call.miss.reason] : "",
        call.calls.join(", "),
      ];
    };
    return { heads, count: data.calls.length, cells };
  }

  function eventRows(data) {
    const events = [...data.calls.keys()].filter((at) => ctxpager.reasons(data.calls[at]).length);
    const cells = (row) => {
      const call = data.calls[events[row]];
      return [String(events[row] + 1), call.repack ? "repack" : call.pages_in || call.schemas_in ? "page-in" : "cache miss", ctxpager.reasons(call).join(" ")];
    };
    return { heads: ["call", "what", "why"], count: events.length, cells };
  }

  Object.assign(ctxpager, { Paged, alternative, choice, picker, tiles, waste, inflicted, cache, callRows, eventRows });
}
