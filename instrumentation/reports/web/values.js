// What charts and tables show, computed from a story: sums, parts, the cells of the page map, and how numbers are written.
"use strict";
{
  const { ctxpager } = globalThis;
  const { PARTS, DEFAULTS } = ctxpager; // as the server has them: a story leaves fields out that have their default

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

  const FIGURES = Object.keys(DEFAULTS.call).filter((name) => typeof DEFAULTS.call[name] === "number");
  const EMPTY_PARTS = Object.fromEntries(PARTS.map((part) => [part.name, 0]));

  const total = (parts) => PARTS.reduce((sum, part) => sum + parts[part.name], 0);
  const add = (calls, value) => calls.reduce((sum, call) => sum + value(call), 0);

  const wholeCall = (call) => ({
    ...DEFAULTS.call,
    ...call,
    client: { ...EMPTY_PARTS, ...call.client },
    sent: { ...EMPTY_PARTS, ...call.sent },
    repack: call.repack ? { ...DEFAULTS.repack, ...call.repack } : null,
    inflicted: { ...DEFAULTS.inflicted, ...call.inflicted },
    miss: call.miss ? { ...DEFAULTS.miss, ...call.miss } : null,
    kept_warm: { ...DEFAULTS.kept_warm, ...call.kept_warm },
    cold_before: { ...DEFAULTS.cold_before, ...call.cold_before },
  });

  const fields = (calls, name) =>
    Object.fromEntries(
      Object.keys(DEFAULTS[name]).map((field) => [field, add(calls, (call) => call[name][field] ?? 0)]),
    );

  // Calls that missed the cache, by the reason.
  function missesOf(calls) {
    const found = {};
    for (const { miss } of calls.filter((call) => call.miss)) {
      const sum = (found[miss.reason] ??= { calls: 0, tokens: 0, cost: 0, dollars: 0 });
      sum.calls += 1;
      sum.tokens += miss.tokens;
      sum.cost += miss.cost;
      sum.dollars += miss.dollars ?? 0;
    }
    return found;
  }

  const summed = (calls, side) =>
    Object.fromEntries(PARTS.map((part) => [part.name, add(calls, (call) => call[side][part.name])]));

  function sums(calls) {
    const client = summed(calls, "client");
    const sent = summed(calls, "sent");
    const known = calls.length > 0 && calls.every((call) => call.dollars !== null && call.dollars_before !== null);
    const repacks = calls.filter((call) => call.repack);
    return {
      ...Object.fromEntries(FIGURES.map((name) => [name, add(calls, (call) => call[name])])),
      calls: calls.length,
      branches: new Set(calls.map((call) => call.branch)).size,
      client,
      sent,
      clientTokens: total(client),
      sentTokens: total(sent),
      dollars: known ? add(calls, (call) => call.dollars) : null,
      dollars_before: known ? add(calls, (call) => call.dollars_before) : null,
      repacks: repacks.length,
      evicted: add(repacks, (call) => call.repack.pages),
      rewritten: add(repacks, (call) => call.repack.rewritten),
      inflicted: fields(calls, "inflicted"),
      kept_warm: fields(calls, "kept_warm"),
      cold_before: fields(calls, "cold_before"),
      misses: missesOf(calls),
      estimated: calls.filter((call) => call.estimated).length,
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
      .map((page) => ({ ...DEFAULTS.page, ...page }))
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
