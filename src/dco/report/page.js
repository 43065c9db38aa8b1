"use strict";
// The control reads arrays that Python computed, one entry for each level, and writes the figures beside it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const control = document.getElementById("alpha");
  const narrow = "\u202f";

  // These write numbers as dco.report.formats does.
  const minus = (text) => text.replace("-", "−");
  const grouped = (text) => {
    const [whole, decimals] = text.split(".");
    const thousands = whole.replace(/\B(?=(\d{3})+(?!\d))/g, narrow);
    return minus(decimals ? thousands + "." + decimals : thousands);
  };
  const exponential = (value) => {
    const [digits, power] = value.toExponential(3).split("e");
    return minus(digits.replace(/\.?0+$/, "")) + "e" + minus(String(Number(power)));
  };
  const number = (value) => {
    const size = Math.abs(value);
    if (size >= 1e7 || (size > 0 && size < 1e-4)) return exponential(value);
    return size >= 1000 ? grouped(value.toFixed(0)) : minus(String(Number(value.toPrecision(4))));
  };
  const fixed = (value, decimals) => {
    const size = Math.abs(value);
    const wouldBeZero = value !== 0 && Number(value.toFixed(decimals)) === 0;
    const tooSmall = decimals >= 6 && size > 0 && size < 1e-4;
    return wouldBeZero || tooSmall || size >= 1e7 ? number(value) : grouped(value.toFixed(decimals));
  };
  const percent = (share) => {
    const value = Number((100 * share + 1e-9).toFixed(1));
    const shown = share > 0 && share < 1 ? Math.min(Math.max(value, 0.1), 99.9) : value;
    return shown.toFixed(1) + narrow + "%";
  };
  const promise = (alpha) => String(Number((100 * (1 - alpha)).toFixed(4))) + narrow + "%";
  const size = (value) => fixed(value, data.size_decimals);

  const write = { alpha: String, promise, expected: percent, coverage: percent, mean_size: size, p95_size: size, threshold: number, bound: percent };
  const figure = (name, index) => {
    const value = data[name === "promise" ? "alpha" : name][index];
    return typeof value === "string" ? value : write[name](value);
  };

  const show = (index) => {
    for (const element of document.querySelectorAll("[data-figure]")) element.textContent = figure(element.dataset.figure, index);
    control.setAttribute("aria-valuetext", `alpha ${figure("alpha", index)}, promised coverage ${figure("promise", index)}`);
    document.body.classList.toggle("moved", index !== data.start);
  };

  control.addEventListener("input", () => show(Number(control.value)));
  document.getElementById("reset").addEventListener("click", () => {
    control.value = String(data.start);
    show(data.start);
    control.focus();
  });

  const certificate = document.getElementById("certificate");
  const copied = document.getElementById("copied");
  const packed = document.getElementById("packed");
  const whole = async () => {
    if (!packed) return certificate.textContent;
    const bytes = Uint8Array.from(atob(packed.textContent), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  document.getElementById("copy").addEventListener("click", async () => {
    const text = await whole();
    try {
      await navigator.clipboard.writeText(text);
      copied.textContent = "Copied.";
    } catch {
      certificate.textContent = text;
      getSelection().selectAllChildren(certificate);
      copied.textContent = "Selected: copy it with the keyboard.";
    }
  });

  for (const element of document.querySelectorAll("[data-live]")) element.hidden = false;
  control.value = String(data.start);
  show(data.start);
})();
