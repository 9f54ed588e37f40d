// What charts and tables show, computed from a story: sums, parts, the cells of the page map, and how numbers are written.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});

  // In the order in which they are stacked: what a prompt needs at the bottom, what need not have been sent on top.
  const PARTS = [
    { name: "system", label: "system prompt" },
    { name: "schemas", label: "tools that are called" },
    { name: "user", label: "user" },
    { name: "assistant", label: "assistant" },
    { name: "results", label: "results in use" },
    { name: "other", label: "other" },
    { name: "stubs", label: "put in by paging" },
    { name: "resent", label: "system prompt (resent every call)", waste: true },
    { name: "unused_schemas", label: "tools that are never called", waste: true },
    { name: "stale", label: "stale results", waste: true },
    { name: "superseded", label: "outdated file versions", waste: true },
    { name: "duplicates", label: "duplicate results", waste: true },
  ];

  // A state's place in this list is its number in the cells. Where one pixel stands for many cells, the last one wins.
  const STATES = [
    { letter: ".", name: "absent", label: "not there" },
    { letter: "e", name: "evicted", label: "evicted" },
    { letter: "r", name: "resident", label: "resident" },
    { letter: "s", name: "stale", label: "stale" },
    { letter: "u", name: "used", label: "used" },
    { letter: "f", name: "faulted", label: "paged in" },
  ];
  const USED = STATES.findIndex((state) => state.name === "used");
  const NUMBERS = new Uint8Array(128);
  STATES.forEach((state, number) => {
    NUMBERS[state.letter.charCodeAt(0)] = number;
  });

  const EMPTY_CALL = {
    branch: 0,
    call: 0,
    attempt: 0,
    at: 0,
    model: "",
    input: 0,
    cached: 0,
    written: 0,
    output: 0,
    estimated: false,
    requests: 1,
    cost: 0,
    cost_before: 0,
    dollars: null,
    dollars_before: null,
    pages_in: 0,
    missed: 0,
    schemas_in: 0,
    corrected: 0,
    working: 0,
    repack: null,
    calls: [],
    cached_before: 0,
    new: 0,
  };
  const EMPTY_REPACK = { cause: "", reason: "", pages: 0, saved: 0, rewritten: 0, price: 0, warm: false };
  const EMPTY_PAGE = { name: "", branch: 0, kind: "", tool: "", tokens: 0, states: "", about: "", content: "" };
  const EMPTY_INFLICTED = {
    stubs: 0,
    page_ins: 0,
    corrections: 0,
    rewritten: 0,
    page_in_tokens: 0,
    correction_tokens: 0,
  };
  const EMPTY_PARTS = Object.fromEntries(PARTS.map((part) => [part.name, 0]));

  const total = (parts) => PARTS.reduce((sum, part) => sum + parts[part.name], 0);
  const add = (calls, value) => calls.reduce((sum, call) => sum + value(call), 0);

  // Fields that have their default are not in the story.
  const wholeCall = (call) => ({
    ...EMPTY_CALL,
    ...call,
    client: { ...EMPTY_PARTS, ...call.client },
    sent: { ...EMPTY_PARTS, ...call.sent },
    repack: call.repack ? { ...EMPTY_REPACK, ...call.repack } : null,
    inflicted: { ...EMPTY_INFLICTED, ...call.inflicted },
  });

  const summed = (calls, side) =>
    Object.fromEntries(PARTS.map((part) => [part.name, add(calls, (call) => call[side][part.name])]));

  function sums(calls) {
    const client = summed(calls, "client");
    const sent = summed(calls, "sent");
    const known = calls.length > 0 && calls.every((call) => call.dollars !== null && call.dollars_before !== null);
    const repacks = calls.filter((call) => call.repack);
    return {
      calls: calls.length,
      branches: new Set(calls.map((call) => call.branch)).size,
      requests: add(calls, (call) => call.requests),
      client,
      sent,
      clientTokens: total(client),
      sentTokens: total(sent),
      input: add(calls, (call) => call.input),
      cached: add(calls, (call) => call.cached),
      written: add(calls, (call) => call.written),
      cachedBefore: add(calls, (call) => call.cached_before),
      fresh: add(calls, (call) => call.new),
      output: add(calls, (call) => call.output),
      cost: add(calls, (call) => call.cost),
      costBefore: add(calls, (call) => call.cost_before),
      dollars: known ? add(calls, (call) => call.dollars) : null,
      dollarsBefore: known ? add(calls, (call) => call.dollars_before) : null,
      pagesIn: add(calls, (call) => call.pages_in),
      schemasIn: add(calls, (call) => call.schemas_in),
      corrected: add(calls, (call) => call.corrected),
      repacks: repacks.length,
      moved: add(repacks, (call) => call.repack.pages),
      rewritten: add(repacks, (call) => call.repack.rewritten),
      inflicted: Object.fromEntries(
        Object.keys(EMPTY_INFLICTED).map((name) => [name, add(calls, (call) => call.inflicted[name])]),
      ),
      estimated: add(calls, (call) => (call.estimated ? 1 : 0)),
    };
  }

  // One byte a page and call, row by row, for the calls at the given places of the story.
  function cellsOf(pages, places) {
    const cells = new Uint8Array(pages.length * places.length);
    pages.forEach((page, row) => {
      const start = row * places.length;
      for (let at = 0; at < places.length; at += 1)
        cells[start + at] = NUMBERS[page.states.charCodeAt(places[at]) & 127];
    });
    return cells;
  }

  function running(calls, value) {
    let sum = 0;
    return Float64Array.from(calls, (call) => (sum += value(call)));
  }

  // All that the charts need of a story, or of one branch of it.
  function read(story, branch = null) {
    const all = (story.calls ?? []).map(wholeCall);
    const places = [...all.keys()].filter((at) => branch === null || all[at].branch === branch);
    const calls = places.map((at) => all[at]);
    const pages = (story.pages ?? [])
      .map((page) => ({ ...EMPTY_PAGE, ...page }))
      .filter((page) => branch === null || page.branch === branch);
    const told = sums(calls);
    return {
      session: story.session ?? "",
      harness: story.harness ?? "",
      policy: story.policy ?? "",
      failed: story.failed ?? 0,
      branches: [...new Set(all.map((call) => call.branch))].sort((one, other) => one - other),
      calls,
      pages,
      cells: cellsOf(pages, places),
      sums: told,
      inDollars: told.dollars !== null,
      money: {
        units: [running(calls, (call) => call.cost), running(calls, (call) => call.cost_before)],
        dollars: [running(calls, (call) => call.dollars ?? 0), running(calls, (call) => call.dollars_before ?? 0)],
      },
    };
  }

  // What became of one page: how many calls it was in each state, when it came, when it was last used.
  function lifeOf(data, row) {
    const columns = data.calls.length;
    const counts = STATES.map(() => 0);
    let came = -1,
      used = -1;
    for (let at = 0; at < columns; at += 1) {
      const state = data.cells[row * columns + at];
      counts[state] += 1;
      if (came < 0 && state > 0) came = at;
      if (state >= USED) used = at;
    }
    return { counts, came, used };
  }

  function countStates(data) {
    const counts = new Array(STATES.length).fill(0);
    for (const state of data.cells) counts[state] += 1;
    return counts;
  }

  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const number = (value) => whole.format(Math.round(value) + 0);
  const share = (value, of) => (of ? `${((100 * value) / of).toFixed(1)} %` : "–");
  const signed = (value, of) =>
    of ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs((100 * value) / of).toFixed(1)} %` : "–";

  function dollars(value) {
    const digits = Math.abs(value) >= 1 || value === 0 ? 2 : 4;
    return `${value < 0 ? "−" : ""}$${Math.abs(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
  }

  const price = (value, unit) => (unit === "dollars" ? dollars(value) : number(value));
  const named = (call) => `${call.branch}:${call.call}${call.attempt > 1 ? `#${call.attempt}` : ""}`;

  // Round values for an axis that reaches from nothing to the greatest.
  function ticks(greatest, wanted) {
    if (!(greatest > 0)) return [0];
    const rough = greatest / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= rough);
    return Array.from({ length: Math.floor(greatest / step + 1e-9) + 1 }, (_, at) => at * step);
  }

  Object.assign(ctxpager, {
    PARTS,
    STATES,
    read,
    lifeOf,
    countStates,
    total,
    number,
    share,
    signed,
    dollars,
    price,
    named,
    ticks,
    compact: (value) => short.format(value),
  });
}
