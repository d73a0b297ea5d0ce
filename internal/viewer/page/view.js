// Draws what the server says of each frame: the camera's picture with path, lane lines, road edges and cars ahead of each package, the same from
// above, and numbers. Points are metres from the camera, x forward, y right, z down. window.shown is the frame that is drawn.
"use strict";

const colours = ["#4cc9f0", "#ffb703"], laneColour = "#ffffff", edgeColour = "#ef476f", leadColour = "#80ed99";
const dots = { green: "#2dc653", yellow: "#ffb703", red: "#ef476f" };
const keep = 200; // frames of history
const element = id => document.getElementById(id);
let drive, latest, camera = "road", drawing = false, history = [];
window.shown = null;

const events = new EventSource("events");
events.addEventListener("drive", e => { begin(JSON.parse(e.data)); notice(""); });
events.addEventListener("frame", e => { latest = JSON.parse(e.data); next(); });
events.addEventListener("state", e => state(JSON.parse(e.data)));
events.onerror = () => notice("no connection: spark-run has ended, or is busy");

function notice(text) { element("notice").textContent = text; }

function state(s) {
  element("play").textContent = s.paused ? "Play" : "Pause";
  element("play").disabled = element("step").disabled = s.ended;
  notice(s.ended ? "end of the recording" : "");
}

// begin makes a card for each package.
function begin(d) {
  drive = d;
  history = [];
  document.querySelectorAll(".package").forEach(p => p.remove());
  document.body.className = d.packages.length == 2 ? "two" : "one";
  element("main").className = document.body.className;
  const legend = [];
  d.packages.forEach((p, i) => {
    const card = element("package").content.cloneNode(true).firstElementChild;
    card.id = "package" + i;
    card.querySelector("i").style.background = colours[i];
    put(card, "name", p.name);
    element("main").insertBefore(card, element("above"));
    legend.push([colours[i], "path, " + p.name]);
  });
  legend.push([laneColour, "lane line"], [edgeColour, "road edge"], [leadColour, "car ahead"]);
  element("legend").replaceChildren(...legend.map(([colour, text]) => {
    const item = document.createElement("li"), mark = document.createElement("i");
    mark.style.background = colour;
    item.append(mark, text);
    return item;
  }));
}

// next draws the latest frame when its picture is there. Frames that come meanwhile are skipped, but for the last.
async function next() {
  if (drawing || !latest || !drive) return;
  drawing = true;
  const f = latest, from = camera;
  latest = null;
  try {
    const answer = await fetch(`picture/${f.sequence}/${from}.jpg`);
    if (answer.ok) draw(f, from, await createImageBitmap(await answer.blob()));
  } catch (e) { // the server has gone, which events.onerror says
  }
  drawing = false;
  next();
}

function draw(f, from, picture) {
  element("where").textContent = `frame ${f.frame}, ${f.index + 1} of ${f.total}` + (f.missed ? `, ${f.missed} missed before` : "");
  f.packages.forEach((p, i) => {
    const card = element("package" + i);
    overCamera(card.querySelector("canvas"), picture, f, p, from, colours[i]);
    numbers(card, p);
  });
  fromAbove(f.packages);
  const last = history[history.length - 1];
  if (last && f.index < last.index) history = [];
  if (!last || last.sequence != f.sequence) {
    history.push({ sequence: f.sequence, index: f.index, values: f.packages.map(p => p.ran ? p.curvature : null) });
    history.splice(0, history.length - keep);
  }
  curvatures();
  const d = f.difference || {};
  element("d-path").textContent = unit(d.path, 3, "m");
  element("d-lanes").textContent = unit(d.lanes, 3, "m");
  element("d-curvature").textContent = unit(d.curvature, 6, "1/m");
  element("d-relL2").textContent = d.relL2 == null ? "–" : d.relL2.toExponential(2);
  window.again = () => draw(f, from, picture);
  window.shown = f;
}

// sharp sizes a canvas to the screen's pixels and returns what draws on it, in pixels of the page.
function sharp(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (height) canvas.style.height = height + "px";
  else height = canvas.clientHeight;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width != w || canvas.height != h) [canvas.width, canvas.height] = [w, h];
  const c = canvas.getContext("2d", { willReadFrequently: true });
  c.setTransform(w / width, 0, 0, h / height, 0, 0);
  c.clearRect(0, 0, width, height);
  c.lineJoin = c.lineCap = "round";
  return { c, width, height };
}

// overCamera draws a camera's picture and what a package says over it.
function overCamera(canvas, picture, f, p, from, colour) {
  const { c, width, height } = sharp(canvas, Math.round(canvas.clientWidth * f.height / f.width));
  c.drawImage(picture, 0, 0, width, height);
  if (!p.ran) return;
  const m = f.project[from], sx = width / f.width, sy = height / f.height;
  // A point's place on the canvas; null behind the camera.
  const place = (x, y, z) => {
    const w = m[6] * x + m[7] * y + m[8] * z;
    return w > .5 ? [(m[0] * x + m[1] * y + m[2] * z) / w * sx, (m[3] * x + m[4] * y + m[5] * z) / w * sy, w] : null;
  };
  const line = (points, style, thick, alpha) => {
    c.globalAlpha = alpha;
    c.strokeStyle = style;
    c.lineWidth = thick;
    trace(c, points);
    c.stroke();
    c.globalAlpha = 1;
  };
  const along = l => drive.distances.map((x, k) => place(x, l.y[k], l.z[k]));
  p.edges.forEach(l => line(along(l), edgeColour, 2, sure(l.probability)));
  p.lanes.forEach(l => line(along(l), laneColour, 2, sure(l.probability)));
  if (p.plan) {
    const at = side => p.plan.x.map((x, k) => place(x, p.plan.y[k] + side, p.plan.z[k] + drive.cameraHeight));
    const left = at(-.9), right = at(.9), both = left.map((v, k) => v && right[k]);
    c.globalAlpha = .3;
    c.fillStyle = colour;
    trace(c, [...left.filter((v, k) => both[k]), ...right.filter((v, k) => both[k]).reverse()]);
    c.fill();
    line(at(0), colour, 3, 1);
  }
  const lead = p.leads[0];
  if (lead && lead.x != null && sure(lead.probability) >= .5) {
    const left = place(lead.x, lead.y - .9, drive.cameraHeight), right = place(lead.x, lead.y + .9, drive.cameraHeight - 1.5);
    if (left && right) bracket(c, left[0], right[1], right[0], left[1]);
  }
}

const sure = probability => probability == null ? 1 : probability;

// trace makes a path of points; null interrupts it.
function trace(c, points) {
  c.beginPath();
  let down = false;
  for (const v of points) {
    if (!v) { down = false; continue; }
    down ? c.lineTo(v[0], v[1]) : c.moveTo(v[0], v[1]);
    down = true;
  }
}

// bracket marks the corners of a rectangle.
function bracket(c, left, top, right, bottom) {
  const side = Math.max(4, (right - left) / 4);
  c.strokeStyle = leadColour;
  c.lineWidth = 2;
  c.beginPath();
  for (const [x, y, dx, dy] of [[left, top, 1, 1], [right, top, -1, 1], [left, bottom, 1, -1], [right, bottom, -1, -1]]) {
    c.moveTo(x + dx * side, y);
    c.lineTo(x, y);
    c.lineTo(x, y + dy * side);
  }
  c.stroke();
}

const ahead = 100, aside = 12, gutter = 52; // metres that are seen from above, and the place of their labels

// fromAbove draws all packages on one plane.
function fromAbove(packages) {
  const { c, width, height } = sharp(element("birdseye"));
  const bottom = height - 22, half = (width - gutter) / 2, place = (x, y) => [gutter + half + y * half / aside, bottom - x * (bottom - 8) / ahead];
  c.font = "12px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif";
  c.fillStyle = "#93a0b1";
  c.strokeStyle = "#232b36";
  c.lineWidth = 1;
  for (let x = 0; x <= ahead; x += 20) {
    trace(c, [place(x, -aside), place(x, aside)]);
    c.stroke();
    c.textAlign = "right";
    if (x) c.fillText(x + " m", gutter - 6, place(x, 0)[1] + 4);
  }
  c.textAlign = "center";
  for (let y = -8; y <= 8; y += 4) {
    trace(c, [place(0, y), place(ahead, y)]);
    c.stroke();
    c.fillText(y ? Math.abs(y) + " m" : "0", place(0, y)[0], height - 6);
  }
  c.textAlign = "left";
  c.save();
  c.beginPath();
  c.rect(gutter, 0, width - gutter, bottom);
  c.clip();
  const line = (points, style, thick, alpha, dashed) => {
    c.setLineDash(dashed ? [6, 5] : []);
    c.globalAlpha = alpha;
    c.strokeStyle = style;
    c.lineWidth = thick;
    trace(c, points);
    c.stroke();
    c.globalAlpha = 1;
    c.setLineDash([]);
  };
  packages.forEach((p, i) => {
    if (!p.ran) return;
    const along = l => drive.distances.map((x, k) => place(x, l.y[k]));
    p.edges.forEach(l => line(along(l), edgeColour, 2, sure(l.probability), i));
    p.lanes.forEach(l => line(along(l), laneColour, 2, sure(l.probability) * .9, i));
    const lead = p.leads[0];
    if (lead && lead.x != null && sure(lead.probability) >= .5) {
      const [x, y] = place(lead.x, lead.y);
      c.strokeStyle = leadColour;
      c.lineWidth = 2;
      c.strokeRect(x - 9, y - 12, 18, 12);
    }
  });
  packages.forEach((p, i) => {
    if (p.ran && p.plan) line(p.plan.x.map((x, k) => place(x, p.plan.y[k])), colours[i], i ? 3 : 5, 1, i);
  });
  c.restore();
}

function put(card, is, text) {
  const to = card.querySelector(`[data-is=${is}]`);
  to.textContent = text;
  return to;
}

// unit is a number with so many digits behind the point; a dash where there is none.
function unit(value, digits, of) { return value == null ? "–" : `${value.toFixed(digits)} ${of}`.replace(/^-(?=[0.]+ )/, ""); }

function numbers(card, p) {
  const of = drive.packages[card.id.slice(-1)];
  put(card, "of", `${of.precision}, ${of.device}` + (p.ran ? "" : "; frames were missed: no model ran"));
  put(card, "curvature", unit(p.ran ? p.curvature : null, 6, "1/m"));
  put(card, "acceleration", unit(p.ran ? p.acceleration : null, 3, "m/s²") + (p.stop ? ", stop" : ""));
  put(card, "speed", unit(p.plan ? p.plan.speed : null, 2, "m/s"));
  const lead = p.leads[0];
  put(card, "lead", !lead || lead.x == null ? "–" : `${lead.x.toFixed(1)} m` + (lead.probability == null ? "" : `, ${(100 * lead.probability).toFixed(0)} %`));
  put(card, "desired", p.desired ? `${unit(p.desired.value, 6, "±")} ${p.desired.std == null ? "–" : p.desired.std.toFixed(6)}` : "–");
  const c = put(card, "confidence", p.confidence || "–");
  c.className = p.confidence ? "dot" : "";
  c.style.setProperty("--dot", dots[p.confidence] || "transparent");
  for (const stage of ["prepare", "run", "parse", "mean"]) put(card, stage, unit(p.times[stage], 3, "ms"));
}

// tick is the smallest of 1, 2 and 5 times powers of ten that is no smaller.
function tick(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return power * [1, 2, 5, 10].find(m => power * m >= v);
}

// curvatures plots the commands of the last frames.
function curvatures() {
  const { c, width, height } = sharp(element("history"));
  element("span").textContent = history.length;
  const all = history.flatMap(h => h.values).filter(v => v != null);
  const top = tick(Math.max(1e-4, ...all.map(Math.abs))), left = 72;
  const place = (k, v) => [left + (width - left - 4) * (k + .5) / Math.max(history.length, 40), height / 2 - v / top * (height / 2 - 12)];
  c.font = "12px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif";
  c.fillStyle = "#93a0b1";
  c.strokeStyle = "#232b36";
  c.textAlign = "right";
  c.lineWidth = 1;
  for (const v of [top, 0, -top]) {
    const y = place(0, v)[1];
    trace(c, [[left, y], [width, y]]);
    c.stroke();
    c.fillText(+v.toPrecision(1), left - 8, y + 4);
  }
  drive.packages.forEach((_, i) => {
    c.strokeStyle = colours[i];
    c.setLineDash(i ? [5, 4] : []);
    c.lineWidth = i ? 2 : 3;
    trace(c, history.map((h, k) => h.values[i] == null ? null : place(k, h.values[i])));
    c.stroke();
  });
  c.setLineDash([]);
}

const order = what => fetch("control/" + what, { method: "POST" }).catch(() => {});
element("play").onclick = () => order(element("play").textContent == "Play" ? "play" : "pause");
element("step").onclick = () => order("step");
element("again").onclick = () => order("again");
element("cameras").onclick = e => {
  if (!e.target.dataset.camera) return;
  camera = e.target.dataset.camera;
  for (const b of element("cameras").children) b.className = b.dataset.camera == camera ? "on" : "";
  latest = latest || window.shown;
  next();
};
document.addEventListener("keydown", e => {
  if (e.target.tagName == "BUTTON" && e.key == " ") return; // presses it
  if (e.key == " ") { e.preventDefault(); element("play").click(); }
  if (e.key == "ArrowRight") element("step").click();
});
window.addEventListener("resize", () => window.again && window.again());
