// Follows changes of a page. Pages work without it: load them again.
"use strict";
(() => {
  const part = document.getElementById("live");
  if (part && part.dataset.live && window.EventSource) {
    const source = new EventSource(part.dataset.live);
    const line = document.getElementById("live-line");
    source.onmessage = (event) => {
      // Whoever types in the part, or has opened something there, is not interrupted.
      const busy = part.contains(document.activeElement) || part.querySelector("details[open]");
      if (!busy) part.innerHTML = JSON.parse(event.data);
      const said = part.querySelector("[data-said]");
      if (line && said && line.textContent !== said.dataset.said) line.textContent = said.dataset.said;
    };
    window.addEventListener("pagehide", () => source.close());
  }
})();
