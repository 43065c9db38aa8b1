"use strict";
// Every number on the page was computed beforehand, for every level: this script only looks up and puts in place.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const control = document.getElementById("alpha");
  const texts = document.querySelectorAll("[data-text]");
  const drawn = document.querySelectorAll("[data-drawn]");
  const sets = document.querySelectorAll("[data-set]");

  const chip = (label, kind) => {
    const item = document.createElement("li");
    item.textContent = label;
    if (kind) item.className = kind;
    return item;
  };

  const text = (name, index) => data.words[data.text[name][index]];

  const show = (index) => {
    for (const element of texts) element.textContent = text(element.dataset.text, index);
    for (const element of drawn)
      for (const [name, values] of Object.entries(data.drawn[element.dataset.drawn])) element.setAttribute(name, values[index]);
    for (const element of sets) {
      const example = data.sets[element.dataset.set];
      const [codes, rest] = example.levels[index];
      const items = codes.map((code) => chip(data.labels[code], code === example.truth ? "true" : ""));
      element.replaceChildren(...items, ...(rest ? [chip(rest, "rest")] : []));
    }
    control.setAttribute("aria-valuetext", text("spoken", index));
    document.body.classList.toggle("moved", index !== data.start);
  };

  control.addEventListener("input", () => show(Number(control.value)));
  document.getElementById("reset").addEventListener("click", () => {
    control.value = String(data.start);
    show(data.start);
    control.focus();
  });

  const copy = document.getElementById("copy");
  const certificate = document.getElementById("certificate");
  const copied = document.getElementById("copied");
  const packed = document.getElementById("packed");
  const whole = async () => {
    if (!packed) return certificate.textContent;
    const bytes = Uint8Array.from(atob(packed.textContent), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  copy.addEventListener("click", async () => {
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
