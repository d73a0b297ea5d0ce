// Faults of the page's layout as it is, one a line: what lies beyond the window or its plot, what overlaps, what is hard to read.
(() => {
  const faults = [], name = e => `${e.tagName.toLowerCase()} "${e.textContent.trim().slice(0, 40)}"`;
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) faults.push(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth}`);

  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  for (const svg of document.querySelectorAll("svg:not(svg svg)")) {
    const texts = [...svg.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]);
    texts.forEach(([e, at], i) => {
      if (!inside(at, svg.getBoundingClientRect())) faults.push(`${name(e)} leaves its plot`);
      for (const [other, there] of texts.slice(0, i)) if (meet(at, there)) faults.push(`${name(e)} lies over ${name(other)}`);
    });
  }
  for (const track of document.querySelectorAll(".track div")) {
    const marks = [...track.querySelectorAll("b")].map(e => [e, e.getBoundingClientRect()]);
    marks.forEach(([e, at], i) => { if (i && meet(marks[i - 1][1], at)) faults.push(`${name(e)} lies over ${name(marks[i - 1][0])}`); });
  }

  // Text that leaves a box which does not scroll.
  for (const e of document.querySelectorAll("td, th, p, li, figcaption, dd, button, h1, h2, h3")) {
    const box = e.closest(".card, .scroll, figure, body"), at = e.getBoundingClientRect();
    if (at.width && at.right > box.getBoundingClientRect().right + 1 && !box.matches(".scroll")) faults.push(`${name(e)} leaves its box`);
  }

  // Contrast as WCAG 2.2 defines it, of every element that has text of its own.
  const parse = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = parse(colour).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const back = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor, [, , , alpha = 1] = parse(colour);
      if (alpha > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const e of document.body.querySelectorAll("*")) {
    if (e.disabled || e.closest("script, style, template") || ![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    if (!e.getClientRects().length || style.visibility == "hidden") continue;
    const pair = [luminance(e instanceof SVGElement ? style.fill : style.color), luminance(back(e))].sort((a, b) => b - a);
    const contrast = (pair[0] + .05) / (pair[1] + .05);
    if (contrast < 4.5) faults.push(`${name(e)} has a contrast of ${contrast.toFixed(2)}`);
  }
  return faults.slice(0, 20);
})()
