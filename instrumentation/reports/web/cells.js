// The pixels of the page map: which cells each of them shows, and in which colour.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { STATES } = ctxpager;

  function packed(colour) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return (255 << 24) | (blue << 16) | (green << 8) | red; // pixels are little-endian on every machine with a browser
  }

  // For each pixel of a line the first cell that it shows, and one past the last; -1 for the gap between large cells.
  // Pixels in the middle third are inside: evicted pages are drawn there alone, as the thin trace that a stub is. Where
  // cells are too small to have a middle, every third pixel is.
  function spans(pixels, scroll, cell, count, ratio) {
    const size = cell * ratio;
    const [from, to, inside] = [0, 0, 0].map(() => new Int32Array(pixels));
    const isSmall = size < 3 * ratio - 1e-6;
    const third = Math.max(ratio, size / 3);
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const start = (pixel + scroll * ratio) / size;
      const first = Math.floor(start + 1e-6);
      const into = (start - first) * size;
      const inGap = size >= 4 * ratio && into >= size - ratio - 1e-6;
      from[pixel] = first >= count || inGap ? -1 : first;
      to[pixel] = Math.min(count, Math.max(first + 1, Math.floor((pixel + 1 + scroll * ratio) / size + 1e-6)));
      inside[pixel] = isSmall ? pixel % Math.round(3 * ratio) < ratio : Math.abs(into + 0.5 - size / 2) <= third / 2;
    }
    return { from, to, inside };
  }

  // The states of one line of pixels: of its page, or the most telling ones of all pages that share the line.
  function merged(row, first, last) {
    if (last - first === 1) return row(first);
    const most = row(first).slice();
    for (let at = first + 1; at < last; at += 1) {
      const other = row(at);
      for (let column = 0; column < most.length; column += 1)
        if (other[column] > most[column]) most[column] = other[column];
    }
    return most;
  }

  function fillLine(line, { from, to }, states, colours) {
    for (let x = 0; x < line.length; x += 1) {
      if (from[x] < 0) continue;
      let state = states[from[x]];
      for (let at = from[x] + 1; at < to[x]; at += 1) if (states[at] > state) state = states[at];
      line[x] = colours[state];
    }
  }

  // Lines that show the same pages are copied.
  function fillCells(image, { row, across, down, colour }) {
    const { width, height } = image;
    const pixels = new Uint32Array(image.data.buffer);
    const colours = Uint32Array.from(STATES, (state) => (state.name === "absent" ? 0 : packed(colour(state.name))));
    const beside = colours.map((own, state) => (STATES[state].name === "evicted" ? 0 : own));
    const isCopy = (y) => y > 0 && [down.from, down.to, down.inside].every((values) => values[y] === values[y - 1]);
    for (let y = 0; y < height; y += 1) {
      const start = y * width;
      if (down.from[y] < 0) continue;
      if (isCopy(y)) pixels.copyWithin(start, start - width, start);
      else {
        const states = merged(row, down.from[y], down.to[y]);
        fillLine(pixels.subarray(start, start + width), across, states, down.inside[y] ? colours : beside);
      }
    }
  }

  Object.assign(ctxpager, { spans, fillCells });
}
