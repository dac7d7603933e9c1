// Draws what a terminal has printed, with its colours, as an SVG for light and dark pages:
// `node session-svg.mjs FILE > picture.svg`. It knows the colours that the command line uses, and no cursor movements.
import { readFileSync } from "node:fs";

const CELL = { width: 8.43, height: 19, size: 14 };
const COLOURS = { 31: "red", 32: "green", 33: "yellow", 34: "blue", 35: "magenta", 36: "cyan" };

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/// The pieces of a line: text, and the classes that its escape sequences give it.
function pieces(line) {
  const found = [];
  let classes = new Set();
  for (const part of line.split(/(\x1b\[[0-9;]*[A-Za-z])/)) {
    const sequence = /^\x1b\[([0-9;]*)([A-Za-z])$/.exec(part);
    if (!sequence) {
      if (part) found.push({ text: part, classes: [...classes].join(" ") });
    } else if (sequence[2] === "m") {
      for (const code of sequence[1].split(";").map(Number)) {
        if (code === 0) classes = new Set();
        else if (code === 1) classes.add("bold");
        else if (code === 2) classes.add("dim");
        else if (COLOURS[code % 60]) classes.add(COLOURS[code % 60]);
        else if (code === 90) classes.add("dim");
      }
    }
  }
  return found;
}

const lines = readFileSync(process.argv[2], "utf8").trimEnd().split("\n").map((line) => line.split("\r").pop());
const plain = lines.map((line) => line.replace(/\x1b\[[0-9;]*[A-Za-z]/g, ""));
const columns = Math.max(...plain.map((line) => [...line].length));
const width = Math.ceil(columns * CELL.width + 48);
const height = lines.length * CELL.height + 60;
const text = lines.map((line, row) => {
  let column = 0;
  const spans = pieces(line).map(({ text, classes }) => {
    const x = (24 + column * CELL.width).toFixed(1);
    column += [...text].length;
    return text.trim() && `<tspan x="${x}"${classes && ` class="${classes}"`}>${escape(text)}</tspan>`;
  });
  return `  <text y="${58 + row * CELL.height}" xml:space="preserve">${spans.filter(Boolean).join("")}</text>`;
});

console.log(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc">
  <title id="title">A session of stepwell</title>
  <desc id="desc">${escape(plain.filter((line) => line.startsWith("$")).join("; "))}</desc>
  <style>
    .frame { fill: #ffffff; stroke: #d0d7de; }
    text { fill: #1f2328; font: ${CELL.size}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
    .bold { font-weight: 600; } .dim { fill: #6e7781; } .dot { fill: #d0d7de; }
    .red { fill: #cf222e; } .green { fill: #1a7f37; } .yellow { fill: #9a6700; } .blue { fill: #0969da; } .magenta { fill: #8250df; } .cyan { fill: #1b7c83; }
    @media (prefers-color-scheme: dark) {
      .frame { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; } .dim { fill: #8b949e; } .dot { fill: #30363d; }
      .red { fill: #ff7b72; } .green { fill: #3fb950; } .yellow { fill: #d29922; } .blue { fill: #58a6ff; } .magenta { fill: #bc8cff; } .cyan { fill: #39c5cf; }
    }
  </style>
  <rect class="frame" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="10"/>
  <circle class="dot" cx="24" cy="22" r="6"/><circle class="dot" cx="44" cy="22" r="6"/><circle class="dot" cx="64" cy="22" r="6"/>
${text.join("\n")}
</svg>`);
